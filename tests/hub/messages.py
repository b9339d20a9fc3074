"""A request as the loopback Hub sees it: who asks, what they may do, and the answers they get."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from .storage import Refusal, Storage

if TYPE_CHECKING:
    from .loopback import Handler, LoopbackHub

PAGE = 4  # Entries per page of a listing; small, so that listings have pages


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
        user, owner = self.user, repo_id.split("/")[-2]
        return user is not None and user.role == "write" and owner in (user.name, *user.orgs)

    def repo(self, *, write: bool = False) -> dict[str, Any]:
        repo, user = self.storage.repo(self.groups["repo"]), self.user
        *spaces, owner, _ = self.groups["repo"].split("/")
        if repo is not None and repo["type"] != ("space" if spaces else "model"):
            repo = None
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
