"""What the loopback Hub keeps in a folder: repositories of commits, their files, and who may see them."""

import hashlib
import json
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import hf_xet

LARGE = (".safetensors", ".bin", ".onnx")


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, code: str | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.extra = status, message, code, extra


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Storage:
    """Repositories, persisted to a folder: a Hub that is started again on the same folder has them again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = threading.RLock()
        for folder in ("repos", "blobs", "large", "xet"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    # Repositories

    def _file(self, repo_id: str) -> Path:
        return self.root / "repos" / f"{repo_id.replace('/', '--')}.json"

    def repo(self, repo_id: str) -> dict[str, Any] | None:
        with self.lock:
            file = self._file(repo_id)
            return json.loads(file.read_text()) if file.is_file() else None

    def repos(self) -> list[dict[str, Any]]:
        with self.lock:
            return [json.loads(file.read_text()) for file in sorted((self.root / "repos").glob("*.json"))]

    def save(self, repo: dict[str, Any]) -> None:
        with self.lock:
            file = self._file(repo["id"])
            temporary = file.with_suffix(f".{uuid.uuid4().hex}")
            temporary.write_text(json.dumps(repo))
            temporary.replace(file)

    def create(
        self, repo_id: str, *, kind: str = "model", private: bool = False, gated: bool = False
    ) -> dict[str, Any]:
        repo = {"id": repo_id, "type": kind, "private": private, "gated": gated, "commits": {}, "refs": {}, "tags": {}}
        attributes = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
        first = self._add_commit(
            repo, None, {".gitattributes": self.keep(".gitattributes", attributes)}, "initial commit"
        )
        repo["refs"]["main"] = first
        self.save(repo)
        return repo

    def resolve(self, repo: dict[str, Any], revision: str) -> str:
        if revision in repo["commits"]:
            return revision
        for refs in (repo["refs"], repo["tags"]):
            if revision in refs:
                return refs[revision]
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    # Files

    def keep(self, path: str, content: bytes) -> dict[str, Any]:
        """Store a file, and return its entry in a commit."""
        if path.endswith(LARGE):
            oid = hashlib.sha256(content).hexdigest()
            (self.root / "large" / oid).write_bytes(content)
            return self.large_entry(oid, len(content))
        name = git_id(content)
        (self.root / "blobs" / name).write_bytes(content)
        return {"oid": name, "size": len(content)}

    def large_entry(self, oid: str, size: int) -> dict[str, Any]:
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n".encode()
        large = {"oid": oid, "size": size, "pointerSize": len(pointer)}
        name = str(hf_xet.hash_files([str(self.root / "large" / oid)])[0].hash)
        (self.root / "xet" / name).write_text(oid)
        return {"oid": git_id(pointer), "size": size, "lfs": large, "xetHash": name}

    def read(self, entry: dict[str, Any]) -> bytes:
        large = entry.get("lfs")
        return (self.root / "large" / large["oid"] if large else self.root / "blobs" / entry["oid"]).read_bytes()

    def has_large(self, oid: str) -> bool:
        return (self.root / "large" / oid).is_file()

    def forget(self, content: bytes) -> None:
        """Lose a large file, so that it has to be uploaded again."""
        (self.root / "large" / hashlib.sha256(content).hexdigest()).unlink(missing_ok=True)

    # Commits

    def _add_commit(self, repo: dict[str, Any], parent: str | None, files: dict[str, Any], title: str) -> str:
        content = json.dumps([parent, sorted(files.items()), title, uuid.uuid4().hex], default=str)
        oid = hashlib.sha1(content.encode()).hexdigest()
        date = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        repo["commits"][oid] = {"parent": parent, "title": title, "files": files, "date": date}
        return oid

    def commit(
        self,
        repo_id: str,
        revision: str,
        changes: dict[str, dict[str, Any] | None],
        title: str,
        parent: str | None = None,
        pull_request: bool = False,
    ) -> tuple[str, int | None]:
        """Commit changes (None removes a file); return the commit, and the pull request's number if one was opened."""
        with self.lock:
            repo = self.repo(repo_id)
            assert repo is not None
            if revision not in repo["refs"]:
                raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
            head = repo["refs"][revision]
            if parent is not None and parent != head and not pull_request:
                raise Refusal(412, "A commit has happened since. Please refresh and try again.")
            base = parent if pull_request and parent else head
            files = {**repo["commits"][base]["files"], **changes}
            oid = self._add_commit(repo, base, {path: entry for path, entry in files.items() if entry}, title)
            number = None
            if pull_request:
                number = 1 + sum(ref.startswith("refs/pr/") for ref in repo["refs"])
                repo["refs"][f"refs/pr/{number}"] = oid
            else:
                repo["refs"][revision] = oid
            self.save(repo)
            return oid, number

    def history(self, repo: dict[str, Any], revision: str) -> list[str]:
        oid: str | None = self.resolve(repo, revision)
        found = []
        while oid is not None:
            found.append(oid)
            oid = repo["commits"][oid]["parent"]
        return found

    def put(self, repo_id: str, files: dict[str, bytes], title: str = "put", **create: Any) -> str:
        """Commit files without going through HTTP, creating the repository if need be."""
        if self.repo(repo_id) is None:
            self.create(repo_id, **create)
        return self.commit(repo_id, "main", {path: self.keep(path, content) for path, content in files.items()}, title)[
            0
        ]

    def contents(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        """All files of a revision, without going through HTTP."""
        repo = self.repo(repo_id)
        assert repo is not None
        files = repo["commits"][self.resolve(repo, revision)]["files"]
        return {path: self.read(entry) for path, entry in files.items()}
