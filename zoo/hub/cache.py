"""The Hub's cache, in addition to the client: complete snapshots and damaged files."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from huggingface_hub import constants
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import RepoFile

from .addresses import COMMIT, Address
from .checksums import checksum_of, is_intact

FRESH = ".zoo-fresh"
"""The cache, next to snapshots/, for repeated downloads of existing files."""

UNFINISHED = ".zoo-unfinished-"
"""Prefix of files next to snapshots/ that mark commits with an unfinished pull."""


def snapshot_folder(address: Address, commit: str, cache_dir: str | Path | None) -> Path:
    """Find where the client puts the files of a commit."""
    cache = Path(cache_dir or constants.HF_HUB_CACHE).expanduser().resolve()
    return cache / repo_folder_name(repo_id=address.repo_id, repo_type="model") / "snapshots" / commit


def is_unfinished(snapshot: Path) -> bool:
    """Whether a pull of this commit has begun and not ended."""
    return _mark(snapshot).exists()


def mark_unfinished(snapshot: Path) -> None:
    """Note that files of a commit are missing."""
    mark = _mark(snapshot)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def mark_finished(snapshot: Path, revision: str) -> None:
    """Point the cache's revision to a complete commit; writes nothing if nothing changes (read-only caches)."""
    if is_unfinished(snapshot):
        _mark(snapshot).unlink(missing_ok=True)
    reference, commit = snapshot.parents[1] / "refs" / revision, snapshot.name
    if COMMIT.fullmatch(revision) or (reference.is_file() and reference.read_text(encoding="utf-8") == commit):
        return
    reference.parent.mkdir(parents=True, exist_ok=True)
    temporary = reference.with_name(f".{reference.name}.{uuid.uuid4().hex}")
    temporary.write_text(commit, encoding="utf-8")
    os.replace(temporary, reference)


def discard_damaged(snapshot: Path, entry: RepoFile) -> None:
    """Remove a file that differs from the Hub's list, so that the client downloads it again."""
    file = snapshot / entry.path
    if is_intact(entry, file):
        return
    # What the file links to may be another file's, and right: only what is called by this checksum is removed.
    file.unlink(missing_ok=True)
    blob = snapshot.parents[1] / "blobs" / checksum_of(entry)
    if is_intact(entry, blob):
        return
    shared = blob.resolve() if blob.is_symlink() else None
    blob.unlink(missing_ok=True)
    if shared is not None and shared.is_file() and not _has_its_name(shared):
        shared.unlink()


@contextmanager
def empty_cache(snapshot: Path) -> Iterator[Path]:
    """Have a cache with nothing in it for a while, on the same disk."""
    folder = snapshot.parents[1] / FRESH
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def adopt(fresh: Path, snapshot: Path, entry: RepoFile) -> None:
    """Take a verified file over from another cache, unless the same is there."""
    if is_intact(entry, snapshot / entry.path):
        return
    discard_damaged(snapshot, entry)
    blob = snapshot.parents[1] / "blobs" / checksum_of(entry)
    if not blob.exists():  # the client makes the link to it
        blob.parent.mkdir(parents=True, exist_ok=True)
        os.replace((fresh / entry.path).resolve(), blob)


def _mark(snapshot: Path) -> Path:
    return snapshot.parents[1] / f"{UNFINISHED}{snapshot.name}"


def _has_its_name(shared: Path) -> bool:
    """Whether a blob that repositories share is what Xet calls by its name."""
    from hf_xet import hash_files

    return bool(hash_files([str(shared)])[0].hash == shared.name)
