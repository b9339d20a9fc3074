"""Folders that are either written whole or not at all, and that keep what the zoo did not write.

A folder is written under a temporary name next to its own. The next process that writes the
same folder removes the remains of a killed one, and finishes a replacement that had begun.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from zoo.base.errors import OutputExistsError, enumerate_names
from zoo.base.files import check_writable, expanded, read_mapping, written
from zoo.base.manifest import MANIFEST_FILE, WEIGHTS, changed_files, read_manifest, record_all

MODEL_FILE = "config.json"  # Files of every saved model
RESULT_FILE = "result.json"  # The record of the run that trained it, and its numbers; a model card is made of them
EVALUATIONS_FILE = "evaluations.json"  # Scores, as `zoo evaluate --save` writes them: one entry for every task and data

REVISIONS_SUFFIX = "-revisions"
"""Suffix of the folder of models saved during a run, after the name of the trained model's folder."""

RECORD_FILE = "weights.json"  # The record of weights by name

TOKENIZER_FILE = "tokenizer.json"
TARGET_FOLDER = "target"  # Where a checkpoint holds the target's tokenizer, if it has its own

USUAL_FILES = (
    *(MODEL_FILE, "generation_config.json", "model.safetensors", "model.safetensors.index.json", "README.md"),
    *(TOKENIZER_FILE, "tokenizer_config.json", RESULT_FILE),
)
"""Files of most folders."""

LOCK, MAKING, READY = "lock", "new", "ready"
"""In the temporary folder: what its process holds; what is being written; and what is whole and being moved."""

SCRATCH = "zoo"  # Name of temporary folders in the system's own, between a dot and another
WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # Error codes of file systems without locks


def read_result(folder: str | Path) -> dict[str, Any]:
    """Read the record of a run; empty where there is none, or none that can be read."""
    return read_mapping(Path(folder) / RESULT_FILE)


def check_output(folder: Path, *, force: bool = False) -> None:
    """Refuse to write where something is that should not be lost, or where nothing can be written."""
    if folder.exists() and folder.resolve() == Path.cwd():
        raise OutputExistsError("the current folder cannot be written as a whole; name a folder inside of it")
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{str(folder)!r} exists and is not a folder; choose another name")
    for place in (folder, folder.resolve().parent):
        check_writable(place)
    if folder.is_dir() and any(folder.iterdir()):
        if not force:
            problem = f"folder {str(folder)!r} is not empty"
            raise OutputExistsError(f"{problem}; choose another one, or force its replacement (--force)")
        check_replaceable(folder, USUAL_FILES)


def check_replaceable(folder: Path, names: tuple[str, ...]) -> None:
    """Raise OutputExistsError for files that the zoo did not write, or that were changed since."""
    files = read_manifest(folder)
    where = f"folder {str(folder)!r} is not empty and"
    if not files:
        raise OutputExistsError(
            f"{where} has no {MANIFEST_FILE}, by which the zoo knows what it wrote; what it did not write is not "
            "replaced: choose another folder, or empty this one"
        )
    others = [name for name in names if name not in {*files, MANIFEST_FILE} and os.path.lexists(folder / name)]
    if others:
        problem = f"{where} holds what the zoo did not write and would replace: {enumerate_names(others)}"
        raise OutputExistsError(f"{problem}; move it elsewhere")
    changed = changed_files(folder, files)
    if changed:
        problem = f"{where} holds files that were changed since the zoo wrote them: {enumerate_names(changed)}"
        raise OutputExistsError(f"{problem}; move them elsewhere")


@contextmanager
def written_whole(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """Write a folder under a temporary name next to it, and move it into place on success."""
    folder = expanded(folder).resolve()
    with written(folder):
        finish_earlier(folder)
        check_output(folder, force=force)
        folder.parent.mkdir(parents=True, exist_ok=True)
        workshop, lock = locked_workshop(folder)
        moved = True
        try:
            made = workshop / MAKING
            made.mkdir()
            yield made
            record_all(made)
            check_output(folder, force=force)
            if folder.is_dir() and any(folder.iterdir()):
                check_replaceable(folder, tuple(relative_files(made)))
            made.rename(workshop / READY)
            moved = False
            move_into(folder, workshop / READY)
            moved = True
        finally:
            lock.release()
            if moved:
                clear(workshop)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Temporary folder, removed at the end of the block; those of killed processes are removed first."""
    place = Path(tempfile.gettempdir()).resolve() / SCRATCH
    workshop, lock = locked_workshop(place)
    finish_earlier(place, owner=workshop.stat().st_uid)
    try:
        made = workshop / MAKING
        made.mkdir()
        yield made
    finally:
        lock.release()
        clear(workshop)


@contextmanager
def locked(lock_file: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a file in its folder, removed again if empty, as long as the process lives; counts as held without locks."""
    made = [parent for parent in lock_file.parents if not parent.exists()]
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(lock_file)
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        yield False
        return
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    try:
        yield True
    finally:
        lock.release()
        with suppress(OSError):  # not empty
            for parent in made:
                parent.rmdir()


@contextmanager
def held_alone(folder: Path, what: str) -> Iterator[None]:
    """Refuse a folder that another process is writing, before anything is computed that should go there."""
    folder = expanded(folder).resolve()
    lock_file = folder.with_name(f".{folder.name}.{LOCK}")
    with locked(lock_file, wait=False) as ours:
        if not ours:
            problem = f"another process is {what} {str(folder)!r}"
            raise OutputExistsError(f"{problem}; wait for its end, or choose another output folder")
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no file that is open
                lock_file.unlink()


def locked_workshop(folder: Path) -> tuple[Path, BaseFileLock]:
    """Make a temporary folder and hold its lock; until then another process may take it for a dead one's."""
    while True:
        workshop = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        lock = FileLock(workshop / LOCK)
        with suppress(FileNotFoundError, FileExistsError):  # both are raised where it was taken for a dead one's
            lock.acquire()
            if (workshop / LOCK).is_file():
                return workshop, lock
            lock.release()


def relative_files(folder: Path) -> list[str]:
    """List the files of a folder in the order in which they are moved: weights first, the manifest last."""
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir()]
    return sorted(names, key=lambda name: (name == MANIFEST_FILE, not name.endswith(WEIGHTS), name))


def move_into(folder: Path, new: Path) -> None:
    """Replace files that the zoo wrote earlier by new ones. An interrupted replacement can be repeated."""
    if not (new / MANIFEST_FILE).is_file():
        return
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if not folder.exists():
        new.rename(folder)
        return
    for name in read_manifest(folder).keys() - read_manifest(new).keys():
        (folder / name).unlink(missing_ok=True)
        parent = (folder / name).parent
        if parent != folder and parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()
    for name in relative_files(new):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(new / name, folder / name)


def finish_earlier(folder: Path, owner: int | None = None) -> None:
    """Remove what killed processes left next to a folder, and finish replacements that had begun."""
    for workshop in folder.parent.glob(f".{glob.escape(folder.name)}.*"):
        if owner is not None and (not os.path.lexists(workshop) or workshop.lstat().st_uid != owner):
            continue
        with suppress(OSError):  # it is not empty, for example with a lock
            workshop.rmdir()
        if not (workshop / LOCK).is_file():
            continue  # another process's
        lock = FileLock(workshop / LOCK)
        try:
            lock.acquire(blocking=False)
        except (Timeout, FileNotFoundError, FileExistsError):
            continue  # its process is alive, or has just removed it
        try:
            if (workshop / READY).is_dir():
                move_into(folder, workshop / READY)
            clear(workshop)
        finally:
            lock.release()
        if sys.platform == "win32":  # a lock that is held cannot be removed there, nor one that another process holds
            with suppress(OSError):
                (workshop / LOCK).unlink()
                workshop.rmdir()


def clear(workshop: Path) -> None:
    """Remove a temporary folder, and last what shows that it is one."""
    for part in (workshop / MAKING, workshop / READY, workshop):
        shutil.rmtree(part, ignore_errors=True)
