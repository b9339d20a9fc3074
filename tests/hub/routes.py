"""What the loopback Hub answers."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from .storage import Refusal, Storage

if TYPE_CHECKING:
    from .loopback import Handler, LoopbackHub

PAGE = 4
"""Entries per page of a listing; small, so that listings have pages."""

MODELS = r"/api/models/(?P<repo>[^/]+/[^/]+?)"


@dataclass
class User:
    name: str
    role: str = "write"
    orgs: tuple[str, ...] = ()


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def json_answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})


@dataclass
class Request:
    handler: Handler
    body: bytes
    query: dict[str, list[str]]
    groups: dict[str, str]

    @property
    def hub(self) -> LoopbackHub:
        return self.handler.hub

    @property
    def storage(self) -> Storage:
        return self.hub.storage

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def user(self) -> User | None:
        header = self.handler.headers.get("Authorization")
        if header is None:
            return None
        user = self.hub.users.get(header.removeprefix("Bearer "))
        if user is None:
            raise Refusal(401, "Invalid credentials in Authorization header")
        return user

    def may_write(self, repo_id: str) -> bool:
        user, owner = self.user, repo_id.split("/", maxsplit=1)[0]
        return user is not None and user.role == "write" and owner in (user.name, *user.orgs)

    def repo(self, *, write: bool = False) -> dict[str, Any]:
        repo, user = self.storage.repo(self.groups["repo"]), self.user
        if repo is not None and repo["type"] != "model":
            repo = None
        owner = self.groups["repo"].split("/")[0]
        if repo is None or (repo["private"] and (user is None or owner not in (user.name, *user.orgs))):
            raise Refusal(401 if user is None else 404, "Repository not found", "RepoNotFound")
        if write and user is None:
            raise Refusal(401, "Invalid username or password.")
        if write and not self.may_write(repo["id"]):
            raise Refusal(403, "You don't have the rights to write here")
        return repo

    def require_access(self, repo: dict[str, Any]) -> None:
        if repo["gated"] and not self.may_write(repo["id"]):
            raise Refusal(403, "Access to this model is restricted", "GatedRepo")

    def page(self, items: list[Any]) -> Answer:
        start = int(self.query.get("cursor", ["0"])[0])
        headers = {}
        if start + PAGE < len(items):
            path = urlsplit(self.handler.path).path
            rest = "".join(
                f"&{key}={quote(value)}" for key, values in self.query.items() if key != "cursor" for value in values
            )
            headers["Link"] = f'<{self.hub.endpoint}{path}?cursor={start + PAGE}{rest}>; rel="next"'
        return json_answer(items[start : start + PAGE], headers=headers)


def whoami(request: Request) -> Answer:
    user = request.user
    if user is None:
        raise Refusal(401, "Invalid username or password.")
    orgs = [{"name": name} for name in user.orgs]
    return json_answer({"name": user.name, "orgs": orgs, "auth": {"accessToken": {"role": user.role}}})


def create(request: Request) -> Answer:
    user, wanted = request.user, request.json
    if user is None:
        raise Refusal(401, "Invalid username or password.")
    owner = wanted.get("organization") or user.name
    repo_id = f"{owner}/{wanted['name']}"
    with request.storage.lock:
        there = request.storage.repo(repo_id)
        if there is not None and (not there["private"] or owner in (user.name, *user.orgs)):
            prefix = "" if there["type"] == "model" else f"{there['type']}s/"
            message = "You already created this model repo"
            raise Refusal(409, message, url=f"{request.hub.endpoint}/{prefix}{repo_id}")
        if not request.may_write(repo_id):
            raise Refusal(403, "You don't have the rights to create a model under this namespace")
        request.storage.create(repo_id, private=wanted.get("visibility") == "private")
    return json_answer({"url": f"{request.hub.endpoint}/{repo_id}", "id": repo_id})


def validate_yaml(request: Request) -> Answer:
    import yaml

    content = request.json["content"]
    match = re.match(r"\s*---\s*\n(.*?)\n---", content, re.DOTALL)
    try:
        metadata = yaml.safe_load(match.group(1)) if match else {}
        errors = [] if isinstance(metadata, dict) else [{"message": "metadata must be a mapping"}]
    except yaml.YAMLError as error:
        errors = [{"message": str(error)}]
    return json_answer({"errors": errors, "warnings": []}, 400 if errors else 200)


def info_of(request: Request, repo: dict[str, Any], revision: str) -> dict[str, Any]:
    commit = request.storage.resolve(repo, revision)
    files = repo["commits"][commit]["files"]
    tags, pipeline = [], None
    if "README.md" in files:
        import yaml

        match = re.match(r"---\n(.*?)\n---", request.storage.read(files["README.md"]).decode(), re.DOTALL)
        metadata = (yaml.safe_load(match.group(1)) if match else {}) or {}
        tags = [*metadata.get("tags", []), *filter(None, [metadata.get("library_name")])]
        pipeline = metadata.get("pipeline_tag")
    return {
        "id": repo["id"],
        "modelId": repo["id"],
        "sha": commit,
        "private": repo["private"],
        "gated": "manual" if repo["gated"] else False,
        "tags": sorted(set(tags)),
        "pipeline_tag": pipeline,
        "lastModified": repo["commits"][commit]["date"],
        "siblings": [{"rfilename": path} for path in files],
    }


def info(request: Request) -> Answer:
    return json_answer(info_of(request, request.repo(), request.groups.get("revision", "main")))


def list_models(request: Request) -> Answer:
    user = request.user
    found = []
    for repo in request.storage.repos():
        owner = repo["id"].split("/")[0]
        visible = not repo["private"] or (user is not None and owner in (user.name, *user.orgs))
        if repo["type"] == "model" and visible and request.query.get("author", [owner]) == [owner]:
            described = info_of(request, repo, "main")
            if set(request.query.get("filter", [])) <= set(described["tags"]):
                found.append(described)
    return request.page(found)


def tree(request: Request) -> Answer:
    repo = request.repo()
    files = repo["commits"][request.storage.resolve(repo, request.groups["revision"])]["files"]
    folders = sorted({str(parent) for path in files for parent in list(Path(path).parents)[:-1]})
    entries = [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0} for path in folders]
    return request.page(entries + [{"type": "file", "path": path, **entry} for path, entry in sorted(files.items())])


def refs(request: Request) -> Answer:
    repo = request.repo()
    shown: dict[str, list[dict[str, str]]] = {"branches": [], "tags": [], "converts": [], "pullRequests": []}
    for name, commit in repo["refs"].items():
        is_request = name.startswith("refs/pr/")
        ref = name if is_request else f"refs/heads/{name}"
        shown["pullRequests" if is_request else "branches"].append({"name": name, "ref": ref, "targetCommit": commit})
    for name, commit in repo["tags"].items():
        shown["tags"].append({"name": name, "ref": f"refs/tags/{name}", "targetCommit": commit})
    return json_answer(shown)


def commits(request: Request) -> Answer:
    repo = request.repo()
    return request.page(
        [
            {
                "id": oid,
                "title": repo["commits"][oid]["title"],
                "message": "",
                "authors": [],
                "date": repo["commits"][oid]["date"],
            }
            for oid in request.storage.history(repo, request.groups["revision"])
        ]
    )


def branch(request: Request) -> Answer:
    repo = request.repo(write=True)
    name = request.groups["revision"]
    with request.storage.lock:
        if name in repo["refs"]:
            raise Refusal(409, "Reference already exists")
        repo["refs"][name] = request.storage.resolve(repo, (request.json or {}).get("startingPoint", "main"))
        request.storage.save(repo)
    return json_answer({})


def preupload(request: Request) -> Answer:
    opens_request = "create_pr" in request.query
    repo = request.repo(write=not opens_request)
    files = repo["commits"][request.storage.resolve(repo, request.groups["revision"])]["files"]
    modes = []
    for file in request.json["files"]:
        there = files.get(file["path"])
        oid = there and (there["lfs"]["oid"] if "lfs" in there else there["oid"])
        mode = "lfs" if file["path"].endswith((".safetensors", ".bin", ".onnx")) else "regular"
        modes.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    return json_answer({"files": modes})


def commit(request: Request) -> Answer:
    opens_request = "create_pr" in request.query
    repo = request.repo(write=not opens_request)
    changes: dict[str, dict[str, Any] | None] = {}
    header: dict[str, Any] = {}
    for line in request.body.splitlines():
        item = json.loads(line)
        key, value = item["key"], item["value"]
        if key == "header":
            header = value
        elif key == "file":
            changes[value["path"]] = request.storage.keep(value["path"], b64decode(value["content"]))
        elif key == "lfsFile":
            if not request.storage.has_large(value["oid"]):
                raise Refusal(400, f"LFS object {value['oid']} has not been uploaded")
            changes[value["path"]] = request.storage.large_entry(value["oid"], value["size"])
        elif key == "deletedFile":
            changes[value["path"]] = None
    oid, number = request.storage.commit(
        repo["id"], request.groups["revision"], changes, header["summary"], header.get("parentCommit"), opens_request
    )
    url = f"{request.hub.endpoint}/{repo['id']}/commit/{oid}"
    discussion = f"{request.hub.endpoint}/{repo['id']}/discussions/{number}"
    return json_answer({"commitUrl": url, "commitOid": oid, "pullRequestUrl": discussion if number else None})


def batch(request: Request) -> Answer:
    request.repo(write="ref" in request.json)
    objects = []
    for wanted in request.json["objects"]:
        found = {"oid": wanted["oid"], "size": wanted["size"]}
        if not request.storage.has_large(wanted["oid"]):
            found["actions"] = {
                "upload": {"href": f"{request.hub.content}/upload/{wanted['oid']}?signature=secret"},
                "verify": {"href": f"{request.hub.endpoint}/{request.groups['repo']}.git/info/lfs/verify"},
            }
        objects.append(found)
    return json_answer({"transfer": "basic", "objects": objects})


def verify(request: Request) -> Answer:
    wanted = request.json
    if not request.storage.has_large(wanted["oid"]):
        raise Refusal(404, "Object does not exist")
    return json_answer({})


def resolve(request: Request) -> Answer:
    repo = request.repo()
    request.require_access(repo)
    oid = request.storage.resolve(repo, request.groups["revision"])
    entry = repo["commits"][oid]["files"].get(request.groups["path"])
    if entry is None:
        raise Refusal(404, "Entry not found", "EntryNotFound")
    headers = {"X-Repo-Commit": oid, "ETag": f'"{entry["oid"]}"', "Accept-Ranges": "bytes"}
    if "lfs" not in entry:
        return ranged(request, request.storage.read(entry), headers)
    large = entry["lfs"]
    location = f"{request.hub.content}/large/{large['oid']}?signature=secret"
    linked = {"X-Linked-Etag": f'"{large["oid"]}"', "X-Linked-Size": str(large["size"]), "Location": location}
    return Answer(302, b"", {**headers, **linked})


def download(request: Request) -> Answer:
    if "Authorization" in request.handler.headers:
        request.hub.authorized_content.append(request.handler.path)
    file = request.storage.root / "large" / request.groups["oid"]
    if not file.is_file():
        raise Refusal(404, "no such object")
    return ranged(request, file.read_bytes(), {"Accept-Ranges": "bytes"})


def upload(request: Request) -> Answer:
    oid = request.groups["oid"]
    if hashlib.sha256(request.body).hexdigest() != oid:
        raise Refusal(400, "the content does not have the checksum that was announced")
    (request.storage.root / "large" / oid).write_bytes(request.body)
    return Answer()


def ranged(request: Request, content: bytes, headers: dict[str, str]) -> Answer:
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", request.handler.headers.get("Range", ""))
    if not match:
        return Answer(200, content, {**headers, "Content-Length": str(len(content))})
    start, end = int(match.group(1)), int(match.group(2) or len(content) - 1)
    if start >= len(content):
        return Answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
    part = content[start : end + 1]
    where = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
    return Answer(206, part, {**headers, "Content-Length": str(len(part)), "Content-Range": where})


REVISION = r"(?P<revision>[^/]+)"
ROUTES = (
    ("GET", "/api/whoami-v2", whoami),
    ("POST", "/api/repos/create", create),
    ("POST", "/api/validate-yaml", validate_yaml),
    ("GET", "/api/models", list_models),
    ("GET", MODELS, info),
    ("GET", f"{MODELS}/revision/{REVISION}", info),
    ("GET", f"{MODELS}/tree/{REVISION}", tree),
    ("GET", f"{MODELS}/refs", refs),
    ("GET", f"{MODELS}/commits/{REVISION}", commits),
    ("POST", f"{MODELS}/branch/{REVISION}", branch),
    ("POST", f"{MODELS}/preupload/{REVISION}", preupload),
    ("POST", f"{MODELS}/commit/{REVISION}", commit),
    ("POST", r"/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects/batch", batch),
    ("POST", r"/(?P<repo>[^/]+/[^/]+)\.git/info/lfs/verify", verify),
    ("GET HEAD", rf"/(?P<repo>[^/]+/[^/]+)/resolve/{REVISION}/(?P<path>.+)", resolve),
)
CONTENT_ROUTES = (
    ("GET HEAD", "/large/(?P<oid>[0-9a-f]{64})", download),
    ("PUT", "/upload/(?P<oid>[0-9a-f]{64})", upload),
)
