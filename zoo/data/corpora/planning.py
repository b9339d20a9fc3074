"""Plan of preparing a source: the pieces of each shard, and the texts that are held out."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo.base.errors import DataError, suggest
from zoo.base.files import stamp_of
from zoo.registry import CORPORA

from .getting import located
from .sources import (
    COMPRESSED,
    HELDOUT_NAMES,
    HUB,
    LONGEST_PART,
    SPLITS,
    TRAIN_NAMES,
    BadLineError,
    Piece,
    files_of,
    hub_splits,
    kind_of,
    parts_of,
    plan,
    streamed,
)

SHARD_BYTES, MOST_SHARDS = 1 << 25, 1 << 10  # Bytes of text of a shard; more where there would be more shards than this

ASIDE_BYTES, ASIDE_SHARE, ASIDE_SHARDS = 1 << 22, 0.05, 64
"""Most bytes that are held out of a source without held-out texts, their share, and shards they are taken from."""

SAMPLE_CHARACTERS = 1 << 26  # Characters that a tokenizer is trained on, at most

HUB_SHARD = re.compile(rf"({'|'.join((*TRAIN_NAMES, *HELDOUT_NAMES))})-\d{{5}}-of-\d{{5}}\.")  # Often in a folder data

Skip = Callable[[BadLineError], None]


@dataclass(frozen=True)
class TextSource:
    """Texts to prepare."""

    name: str  # A path, or "hf:" and a data set's name
    units: Sequence[Sequence[Piece]]  # Pieces of each shard
    heldout: Sequence[Piece]  # Pieces that are held out
    aside: int = 0  # Bytes of documents at the beginnings of shards that are held out
    column: str | None = None  # Column or key of the text, None for the usual ones
    against: tuple[TextSource, ...] = ()  # Other sources; their held-out texts are left out as well
    is_divided: bool = False  # Whether held-out texts were set aside, from a source without a held-out part

    @cached_property
    def files(self) -> list[str]:
        """Files to train on; none of a data set on the Hub."""
        found = (piece.file for unit in self.units for piece in unit if not piece.file.startswith(HUB))
        return list(dict.fromkeys(found))

    @cached_property
    def stamps(self) -> dict[str, list[int]]:
        """Size and time of change of the files, those that are held out included."""
        held = (piece.file for piece in self.heldout if not piece.file.startswith(HUB))
        return {file: stamp_of(file) for file in (*self.files, *held)}

    @property
    def planned(self) -> dict[str, Any]:
        """Plain data that decide what is written, together with tokenizer and options."""
        return {
            "units": [[asdict(piece) for piece in unit] for unit in self.units],
            "stamps": self.stamps,
            "heldout": [asdict(piece) for piece in self.heldout],
            "aside": self.aside,
            "against": [other.planned for other in self.against],
            **({} if self.column is None else {"column": self.column}),
        }

    @cached_property
    def sha256(self) -> str:
        """Hash of the content, independent of the place; of the name for a data set on the Hub."""
        digest = hashlib.sha256(f"{len(self.units)} {self.name}".encode() if not self.files else b"")
        for file in self.files:
            with open(file, "rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()

    def heldout_texts(self, skip: Skip) -> Iterator[str]:
        for piece in self.heldout:
            yield from (part.text for part in parts_of(piece, self.column, skip))
        units = self.units[:: -(-len(self.units) // ASIDE_SHARDS)] if self.aside else ()
        left = self.aside
        for unit in units:
            taken = 0
            parts = (part for piece in unit for part in parts_of(piece, self.column, skip))
            for part in (part for part in parts if part.begins and part.ends):  # whole documents
                length = len(part.text.encode())
                if taken and taken + length > self.aside // len(units):
                    break
                yield part.text
                taken += length
                if taken >= left:
                    return
            left -= taken

    def sample(self, share: float = 1.0) -> Iterator[str]:
        """Beginnings of all shards, of equal length, without held-out documents: what a tokenizer is trained on."""
        held = set(self.heldout_texts(lambda error: None)) if self.aside else ()
        for unit in self.units:
            left = int(SAMPLE_CHARACTERS * share) // len(self.units)
            parts = (part for piece in unit for part in parts_of(piece, self.column, lambda error: None))
            for part in (part for part in parts if part.text not in held):
                yield part.text[:left]
                left -= len(part.text)
                if left <= 0:
                    break


def find_source(
    source: str | os.PathLike[str],
    *,
    heldout: str | os.PathLike[str] | None = None,
    column: str | None = None,
    aside: bool = True,
    shard_bytes: int | None = None,
) -> TextSource:
    """Find the pieces of a source, and those that are held out.

    A source is a file or folder, the name of a corpus, or "hf:" and a data set's name. By default its own held-out
    texts are used, or else some are set `aside`. A shard has 32 MiB of text, or a thousandth of the source where that
    is more.
    """
    name = resolved(source)
    given = None if heldout is None else [piece for unit in find_source(heldout, aside=False).units for piece in unit]
    if name.startswith(HUB):
        splits = hub_splits(name)
        first = next((split for split in TRAIN_NAMES if split in splits), splits[0])
        second = next((split for split in HELDOUT_NAMES if split in splits and split != first), None)
        units = [[piece] for piece in hub_pieces(f"{name}#{first}")]
        held = given if given is not None else hub_pieces(f"{name}#{second}") if second is not None else []
        divided = aside and not held
        return TextSource(name, units, held, ASIDE_BYTES if divided else 0, column, is_divided=divided)
    if not Path(name).exists():
        raise DataError(
            f"{name} does not exist; give a file, a folder, the name of a corpus, or hf:ORG/NAME"
            f"{suggest(name, CORPORA.names())}"
        )
    files = files_of(Path(name))
    by_split: dict[str, list[Path]] = {}
    for file in files:
        by_split.setdefault(split_of(file, Path(name)), []).append(file)
    train = by_split.get("train", [])
    out = next((by_split[split] for split in HELDOUT_NAMES if split in by_split), []) if train else []
    held = given if given is not None else [Piece(str(file.absolute())) for file in out]
    files = [file.absolute() for file in train or files]
    total = sum(file.stat().st_size for file in files)
    size = shard_bytes or max(SHARD_BYTES, total // MOST_SHARDS // LONGEST_PART * LONGEST_PART)
    if held or not aside:
        return TextSource(name, plan(files, size), held, column=column)
    most = min(ASIDE_BYTES, int(ASIDE_SHARE * total))
    if any(kind_of(file) != ".txt" for file in files):
        return TextSource(name, plan(files, size), [], max(most, 1), column, is_divided=True)
    if len(files) > 1:
        out = files_aside(files, Path(name).absolute(), most)
        kept = [file for file in files if file not in out]
        held = [Piece(str(file)) for file in out]
        return TextSource(name, plan(kept, size), held, column=column, is_divided=True)
    (file,) = files
    if file.suffix in COMPRESSED:
        problem = f"nothing can be held out of one compressed text, {file}"
        raise DataError(f"{problem}; name texts to evaluate on (--heldout)")
    held = [Piece(str(file), total - most)]
    return TextSource(name, plan(files, size, total - most), held, column=column, is_divided=True)


def resolved(source: str | os.PathLike[str]) -> str:
    """Path of a source, or "hf:" and its name on the Hub; a corpus is downloaded if it is not here."""
    name = located(source)
    if name in CORPORA and not Path(name).exists():
        corpus = CORPORA.get(name)
        return f"{HUB}{corpus.hub}" + (f"@{corpus.revision}" if corpus.revision else "")
    return name


def hub_pieces(name: str) -> list[Piece]:
    number = streamed(name).num_shards
    return [Piece(name, shard, number, shard + 1 == number) for shard in range(number)]


def split_of(file: Path, source: Path) -> str:
    """Split of a file: its suffix of BabyLM, its name as the Hub's shards have it, or the first part of its path."""
    if file.suffix in SPLITS:
        return file.suffix[1:]
    if (shard := HUB_SHARD.match(file.name)) is not None:
        return shard[1]
    parts = file.relative_to(source).parts if source.is_dir() else (file.name,)
    return parts[0].partition(".")[0].lower()


def files_aside(files: Sequence[Path], folder: Path, most: int) -> list[Path]:
    """Choose texts to hold out by a hash of their paths in a folder, or the smallest where none is small enough."""
    out: list[Path] = []
    for file in sorted(files, key=lambda file: hashlib.sha256(file.relative_to(folder).as_posix().encode()).digest()):
        if (size := file.stat().st_size) <= most:
            out.append(file)
            most -= size
    return out or [min(files, key=lambda file: file.stat().st_size)]
