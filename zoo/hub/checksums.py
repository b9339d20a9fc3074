"""Whether files are what the Hub lists. The client's downloads compare sizes only.

Its `verify_repo_checksums` asks for another list, and after a download: `tests/hub/test_integrity.py` needs each file
compared with the list that was taken first.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable
from pathlib import Path

from huggingface_hub.hf_api import RepoFile

SHA1, SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")


def sha256_of(content: Path | bytes) -> str:
    return _digest(hashlib.sha256, content)


def git_id_of(content: Path | bytes) -> str:
    """The name that git gives a file's content: the sha1 of "blob", its size and itself."""
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    return _digest(lambda: hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False), content)


def _digest(new: Callable[[], hashlib._Hash], content: Path | bytes) -> str:
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        return hashlib.file_digest(file, new).hexdigest()


def checksum_of(entry: RepoFile) -> str:
    """The checksum that the Hub lists for a file."""
    kind, checksum = (SHA1, entry.blob_id) if entry.lfs is None else (SHA256, entry.lfs.sha256)
    if not kind.fullmatch(checksum):
        raise ValueError(f"{checksum!r}, which {entry.path} is listed with, is no checksum")
    return checksum


def is_intact(entry: RepoFile, content: Path | bytes) -> bool:
    if isinstance(content, Path) and not content.is_file():
        return False
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    listed, digest = (entry.size, git_id_of) if entry.lfs is None else (entry.lfs.size, sha256_of)
    return size == listed and digest(content) == checksum_of(entry)


def is_intact_blob(file: Path) -> bool:
    """Whether a file of the cache has the hash in its blob's name: a check without a connection."""
    if not file.is_symlink():
        return file.is_file()
    # The link's own target: the blob may be a link again, to a file that repositories share and that Xet has named.
    name = Path(os.readlink(file)).name
    if not file.is_file():
        return False
    return (sha256_of if SHA256.fullmatch(name) else git_id_of)(file) == name
