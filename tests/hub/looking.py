"""Looking at repositories: what there is, and where its files are."""

import re
from pathlib import Path
from typing import Any

from .messages import Answer, Request, json_answer, ranged
from .storage import Refusal


def whoami(request: Request) -> Answer:
    user = request.user
    if user is None:
        raise Refusal(401, "Invalid username or password.")
    orgs = [{"name": name} for name in user.orgs]
    return json_answer({"name": user.name, "orgs": orgs, "auth": {"accessToken": {"role": user.role}}})


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
    token = f"{request.hub.endpoint}/api/models/{repo['id']}/xet-read-token/{oid}"
    xet = {"X-Xet-Hash": entry["xetHash"], "Link": f'<{token}>; rel="xet-auth"'}
    return Answer(302, b"", {**headers, **linked, **xet})
