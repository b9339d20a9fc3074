"""Changing repositories: creating them and their branches, and committing."""

import json
import re
from base64 import b64decode
from typing import Any

from .messages import Answer, Request, json_answer
from .storage import Refusal


def create(request: Request) -> Answer:
    user, wanted = request.user, request.json
    if user is None:
        raise Refusal(401, "Invalid username or password.")
    owner = wanted.get("organization") or user.name
    kind = wanted.get("type") or "model"
    repo_id = f"{'spaces/' if kind == 'space' else ''}{owner}/{wanted['name']}"
    with request.storage.lock:
        there = request.storage.repo(repo_id)
        if there is not None and (not there["private"] or owner in (user.name, *user.orgs)):
            prefix = "" if there["type"] == kind else f"{there['type']}s/"
            message = "You already created this model repo"
            raise Refusal(409, message, url=f"{request.hub.endpoint}/{prefix}{repo_id}")
        if not request.may_write(repo_id):
            raise Refusal(403, "You don't have the rights to create a model under this namespace")
        request.storage.create(repo_id, kind=kind, private=wanted.get("visibility") == "private")
    return json_answer({"url": f"{request.hub.endpoint}/{repo_id}", "id": f"{owner}/{wanted['name']}"})


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
