"""List the contents of the folder of all corpora with their sizes, and remove them."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from zoo.base.errors import DataError, UnknownNameError
from zoo.base.files import written
from zoo.registry import CORPORA

from .getting import PREPARED, data_folder
from .shards import is_prepared, read_manifest

OTHERS = {"tokenizer": "a tokenizer", "table": "rows of a file", "encoded": "ids of rows"}
"""Contents of prepared folders without shards, by the beginnings of their names."""


@dataclass(frozen=True)
class Kept:
    """A kept folder: of a corpus, without `source` and `tokens`, or of what was prepared, with its key as the name."""

    name: str
    source: str
    tokens: int | None
    bytes: int
    place: Path


def kept_corpora() -> list[Kept]:
    """List the folders of corpora that are downloaded, in part too."""
    folders = sorted(place for place in data_folder().glob("*") if place.is_dir() and place.name in CORPORA)
    return [Kept(place.name, "", None, size_of(place), place) for place in folders]


def kept_prepared() -> list[Kept]:
    """List what was prepared by itself, unfinished preparations too."""
    found = []
    for place in sorted(place for place in (data_folder() / PREPARED).glob("*") if place.is_dir()):
        source, tokens = "unfinished", None
        if (kind := place.name.partition("-")[0]) in OTHERS and not place.suffix:
            source = OTHERS[kind]
        elif is_prepared(place):
            try:
                manifest = read_manifest(place)
                source, tokens = manifest.source, manifest.tokens
            except DataError:
                source = "damaged"
        found.append(Kept(place.name, source, tokens, size_of(place), place))
    return found


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def remove(names: Sequence[str], *, prepared: bool = False) -> list[Kept]:
    """Remove corpora, or what was prepared: if nothing of a name is kept, nothing is removed."""
    there = {kept.name: kept for kept in (*kept_corpora(), *kept_prepared())}
    UnknownNameError.check(*names, valid=there, kind="folder", owner=data_folder())
    chosen = list(dict.fromkeys([*names, *(kept.name for kept in kept_prepared() if prepared)]))
    for name in chosen:
        place = there[name].place
        lock = place / ".lock" if name in CORPORA else Path(f"{place}.lock")
        try:
            with written(place), FileLock(lock, timeout=0):
                shutil.rmtree(place)
        except Timeout:
            raise DataError(f"{place} is being written by another process; try again when that has ended") from None
        with suppress(OSError):
            lock.unlink()
    return [there[name] for name in chosen]
