"""From the cache to a folder of the user's: the old version or the new one, and none of the user's own files touched.

A delivery is prepared in its own folder, and begins when its journal is written. From then on it can only be
finished: by the next pull into the folder, if the one that began was killed. Until then nothing takes the folder for a
model. `snapshot_download(local_dir=)` writes file by file, over any files: `tests/hub/test_delivery.py`.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from zoo.base.errors import OutputExistsError, enumerate_names
from zoo.base.files import leaves_its_folder, read_json
from zoo.base.folders import locked
from zoo.base.manifest import quick_hash

from .errors import HubError

RECORD = ".zoo-pull.json"  # Record of a pull in a folder: commit, and files with their hashes
STAGE = ".zoo-pull"  # The folder in which a delivery is prepared: the files, and the journal
LOCK = ".zoo-pull.lock"  # The file that the process holds which delivers

FILES, JOURNAL = "files", "journal.json"
LAST = "config.json"  # The file by which a model is known: it goes first, and comes last


def deliver(snapshot: Path, files: Iterable[str], folder: Path, source: str) -> Path:
    """Copy a snapshot's files into a folder, one process at a time."""
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{folder} is a file; a model is pulled into a folder")
    try:
        with locked(folder / LOCK):
            try:
                _deliver(snapshot, sorted(path for path in files if not path.startswith(STAGE)), folder, source)
            finally:
                # A process that waits for it takes the next file, since filelock 3.24. Windows removes no open file.
                with suppress(OSError):
                    (folder / LOCK).unlink()
    except OutputExistsError:
        raise
    except OSError as error:
        raise HubError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def _deliver(snapshot: Path, files: list[str], folder: Path, source: str) -> None:
    stage = folder / STAGE
    finish_delivery(folder)
    earlier: dict[str, str | None] = {}  # files of an earlier pull into the folder, with their hashes
    if (folder / RECORD).is_file():
        earlier = _read(folder / RECORD)[1]
    elif any(entry.name not in (STAGE, LOCK) for entry in folder.iterdir()):
        raise OutputExistsError(f"{folder} is not empty and no pull made it; choose a new or empty folder")
    _refuse_collisions(folder, set(files) - set(earlier), earlier)
    shutil.rmtree(stage, ignore_errors=True)
    try:
        for path in files:
            (stage / FILES / path).parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(stage / FILES / path):
                problem = f"{source} has two files {path!r} but for upper and lower case"
                raise OutputExistsError(f"{problem}; {folder} holds one")
            shutil.copyfile(snapshot / path, stage / FILES / path)
        hashes = {path: quick_hash(stage / FILES / path) for path in files}
        journal = {"source": source, "files": hashes, "stale": sorted(set(earlier) - set(files))}
        (stage / RECORD).write_text(json.dumps(journal, indent=2) + "\n", encoding="utf-8")
        os.replace(stage / RECORD, stage / JOURNAL)
        finish_delivery(folder)
    finally:
        if not (stage / JOURNAL).exists():
            shutil.rmtree(stage, ignore_errors=True)


def finish_delivery(folder: Path) -> None:
    """Finish the delivery of a killed pull, if any."""
    stage = folder / STAGE
    journal = stage / JOURNAL
    if not journal.is_file():
        return
    source, files, stale = _read(journal)
    # While files are replaced the folder has no configuration, unless the new one is there already.
    if (stage / FILES / LAST).exists():
        (folder / LAST).unlink(missing_ok=True)
    for path in stale:
        (folder / path).unlink(missing_ok=True)
    for path in sorted(files, key=lambda path: (path == LAST, path)):
        if (stage / FILES / path).exists():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(stage / FILES / path, folder / path)
    (stage / RECORD).write_text(json.dumps({"source": source, "files": files}, indent=2) + "\n", encoding="utf-8")
    os.replace(stage / RECORD, folder / RECORD)
    journal.unlink()


def _read(file: Path) -> tuple[str, dict[str, str | None], list[str]]:
    """Read a record or a journal: source, files with their hashes, None in older ones, and files to remove."""
    try:
        content: dict[str, Any] = read_json(file)
        listed, stale = content.get("files", ()), [str(path) for path in content.get("stale", ())]
        files = {str(path): listed[path] if isinstance(listed, dict) else None for path in listed}
    except (ValueError, AttributeError, TypeError) as error:
        raise OutputExistsError(f"{file} is damaged; choose another folder, or empty this one") from error
    for path in (*files, *stale):
        if leaves_its_folder(path):
            raise OutputExistsError(f"{file} names {path!r}, which is not in its folder; choose another folder")
    return str(content.get("source")), files, stale


def _refuse_collisions(folder: Path, new: Iterable[str], earlier: Mapping[str, str | None]) -> None:
    """Refuse to replace what no pull has brought or what was changed since, and to write through links."""
    taken = []
    for path, digest in earlier.items():
        file = folder / path
        is_known = digest is not None and os.path.lexists(file)
        if is_known and not (file.is_file() and quick_hash(file) == digest):
            taken.append(path)
    for path in sorted(new):
        parents = [folder / parent for parent in list(PurePosixPath(path).parents)[:-1]]
        blocked = any(parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in parents)
        if blocked or os.path.lexists(folder / path):
            taken.append(path)
    if taken:
        raise OutputExistsError(
            f"{folder} holds {enumerate_names(taken)}, which this pull would replace or remove, and which no pull "
            "has brought there or which was changed since; move it away, or choose another folder"
        )
