"""Folders and files that are either written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zoo.errors import OutputExistsError

MODEL_FILE = "config.json"
"""What a folder must hold to be recognised as a saved model, which may be replaced."""


def check_output(folder: Path, *, force: bool = False) -> None:
    """Refuse to write where something is that should not be lost.

    Args:
        folder: The folder to be written.
        force: Whether a saved model may be replaced.

    Raises:
        OutputExistsError: When the folder holds files that may not be replaced, or is no folder.
    """
    if not folder.exists():
        return
    if folder.resolve() == Path.cwd():
        raise OutputExistsError("the current folder cannot be written as a whole; name a folder inside of it")
    if not folder.is_dir():
        raise OutputExistsError(f"{str(folder)!r} exists and is not a folder; choose another name")
    if not any(folder.iterdir()):
        return
    if not force:
        raise OutputExistsError(
            f"folder {str(folder)!r} is not empty; choose another one, or force its replacement (--force)"
        )
    if not (folder / MODEL_FILE).is_file():
        raise OutputExistsError(
            f"folder {str(folder)!r} is not empty and holds no {MODEL_FILE}; what is no saved model is not replaced: "
            "choose another one, or empty it"
        )


@contextmanager
def written_whole(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """Write a folder under a temporary name beside it, and rename it when that has succeeded.

    Args:
        folder: The folder to be written; its parents are made.
        force: Whether a saved model there may be replaced.

    Yields:
        An empty folder to write into.

    Raises:
        OutputExistsError: When the folder holds files that may not be replaced.
    """
    folder = folder.expanduser().resolve()
    check_output(folder, force=force)
    folder.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        made = workshop / "new"
        made.mkdir()
        yield made
        check_output(folder, force=force)
        replace(folder, made, workshop / "old")
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def write_file(file: Path, text: str) -> None:
    """Write a file under a temporary name beside it, and rename it when that has succeeded.

    Args:
        file: The file, which is replaced; its folder is made.
        text: What to write.

    Raises:
        OutputExistsError: When a folder has that name.
    """
    if file.is_dir():
        raise OutputExistsError(f"{str(file)!r} is a folder; name a file")
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as stream:
        stream.write(text)
    os.chmod(stream.name, 0o644)
    os.replace(stream.name, file)


def replace(folder: Path, new: Path, old: Path) -> None:
    """Put a new folder where there may be an old one.

    Args:
        folder: Where.
        new: What to put there.
        old: Where to put what was there.
    """
    existed = folder.exists()
    if existed:
        folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        if existed:
            old.rename(folder)
        raise
