"""The protocol for large files (Git LFS, basic transfer), with a port of its own for content."""

import hashlib

from .messages import Answer, Request, json_answer, ranged
from .storage import Refusal


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
