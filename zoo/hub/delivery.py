"""From the cache to a folder of the user's: each file whole, and none of theirs touched."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zoo.errors import OutputExistsError

from .errors import HubError

RECORD = ".zoo-pull.json"
"""What an earlier pull left in a folder: which commit, and which files it brought."""


def deliver(snapshot: Path, files: Iterable[str], folder: Path, source: str) -> Path:
    """Copy a snapshot to a folder.

    All copies are made before the first file of an earlier pull is replaced.

    Args:
        snapshot: The snapshot in the cache.
        files: Paths of its files.
        folder: A new or empty folder, or one of an earlier pull.
        source: Repository and commit.

    Returns:
        The folder.

    Raises:
        OutputExistsError: When there is something else in it.
        HubError: When it cannot be written.
    """
    files = sorted(files)
    earlier = _earlier(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".zoo-pull-", dir=folder) as temporary:
            staged = Path(temporary)
            for path in files:
                (staged / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(snapshot / path, staged / path)
            (staged / RECORD).write_text(json.dumps({"source": source, "files": files}, indent=2) + "\n")
            for path in (*files, RECORD):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(staged / path, folder / path)
        for path in set(earlier) - set(files):
            (folder / path).unlink(missing_ok=True)
    except OSError as error:
        raise HubError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def _earlier(folder: Path) -> list[str]:
    """The files of an earlier pull into the folder."""
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise OutputExistsError(f"{folder} is a file; a model is pulled into a folder")
    record = folder / RECORD
    if not record.is_file():
        if any(folder.iterdir()):
            raise OutputExistsError(f"{folder} is not empty and no pull made it; choose a new or empty folder")
        return []
    try:
        recorded: dict[str, Any] = json.loads(record.read_text())
        paths = [str(path) for path in recorded["files"]]
    except (ValueError, LookupError, TypeError) as error:
        raise OutputExistsError(f"{record} is damaged; choose another folder, or empty this one") from error
    return [path for path in paths if not Path(path).is_absolute() and ".." not in Path(path).parts]
