"""Token shards: files of ids that Megatron-LM, NeMo and nanoGPT read too, with a manifest.

A shard is a pair of files as Megatron-LM's `IndexedDataset` has them: NAME.bin holds ids and nothing else, which is
also what nanoGPT's train.bin and OLMo-core's files are; NAME.idx holds the lengths of sequences and the borders of
documents. A document ends with the tokenizer's end-of-text id.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from zoo.base.errors import DataError, FormatVersionError
from zoo.base.files import read_json, read_mapping, stamp_of, write_json
from zoo.base.formats import SHARDS
from zoo.base.manifest import sha256_of

MANIFEST = SHARDS.place

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
UINT16, INT32 = 8, 4  # Megatron-LM's codes of types. An id below 2**31 has the same bytes as int32 and uint32.
TYPES: Mapping[int, npt.DTypeLike] = {UINT16: np.uint16, INT32: np.int32}

Ids = npt.NDArray[Any]


@dataclass(frozen=True)
class ShardRecord:
    """Entry of a manifest for one shard."""

    name: str  # Its files without suffix
    tokens: int  # Number of ids, ends of documents included
    documents: int  # Number of documents that begin in it
    bytes: int  # UTF-8 bytes of their text
    sha256: Sequence[str]  # Hashes of the .bin and the .idx file
    skipped: int = 0  # Lines and files that could not be read and were left out, as asked
    heldout: int = 0  # Documents that were left out because they are held out
    words: int = 0  # Words of the text, by spaces; 0 where they were not counted
    near: int = 0  # Documents that were left out because they nearly equal held-out ones


def id_type(vocab_size: int) -> int:
    """Code of the smallest type for ids of a vocabulary."""
    return UINT16 if vocab_size <= 1 << 16 else INT32


def write_index(place: Path, code: int, lengths: Sequence[int]) -> None:
    sizes = np.asarray(lengths, np.int32)
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], dtype=np.int64, out=starts[1:])
    starts *= np.dtype(TYPES[code]).itemsize
    with place.open("wb") as stream:
        stream.write(HEADER.pack(MAGIC, 1, code, len(sizes), len(sizes) + 1))
        for part in (sizes, starts, np.arange(len(sizes) + 1, dtype=np.int64)):
            stream.write(part.tobytes())


class Shard:
    """A shard, read by memory map; DataError if a file is missing, truncated or of another format."""

    def __init__(self, folder: Path, record: ShardRecord) -> None:
        self.record = record
        self.file = folder / f"{record.name}.bin"
        index = folder / f"{record.name}.idx"
        try:
            with index.open("rb") as stream:
                magic, version, code, sequences, documents = HEADER.unpack(stream.read(HEADER.size))
            size = self.file.stat().st_size
        except (OSError, struct.error) as error:
            raise DataError(f"{index.with_suffix('')} is not a whole shard: {error}; {AGAIN}") from error
        if magic != MAGIC or version != 1 or code not in TYPES:
            raise DataError(f"{index} is not an index of token shards; {AGAIN}")
        self.type = np.dtype(TYPES[code])
        expected = HEADER.size + 12 * sequences + 8 * documents
        if size != record.tokens * self.type.itemsize or index.stat().st_size != expected:
            raise DataError(f"{self.file} or its .idx is truncated: {record.tokens:,} tokens are recorded; {AGAIN}")
        self.index, self._sequences = index, sequences

    @cached_property
    def ids(self) -> Ids:
        """All ids. *Shape:* (tokens,)."""
        return np.memmap(self.file, self.type, "r") if self.record.tokens else np.empty(0, self.type)

    @cached_property
    def lengths(self) -> Ids:
        """Number of ids of each document. *Shape:* (documents,)."""
        if not self._sequences:
            return np.empty(0, np.int32)
        return np.memmap(self.index, np.int32, "r", HEADER.size, (self._sequences,))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("ids", "lengths")}


AGAIN = "remove its folder, and prepare the data again"

VERIFIED = "verified.json"
"""File in a prepared folder with the files that were compared with their hashes: size, time of change and hash."""


def verify(folder: Path, shards: Sequence[Shard]) -> None:
    """Compare the shards of a folder with their hashes, once: again only after a change of size or time."""
    known = read_mapping(folder / VERIFIED)
    hashes = {
        file: sha256 for one in shards for file, sha256 in zip((one.file, one.index), one.record.sha256, strict=True)
    }
    stamps = {file: [*stamp_of(file), hashes[file]] for file in hashes}
    names = {file: file.relative_to(folder).as_posix() for file in hashes}
    unknown = [file for file in hashes if known.get(names[file]) != stamps[file]]
    with ThreadPoolExecutor() as pool:
        for file, found in zip(unknown, pool.map(sha256_of, unknown), strict=True):
            if found != hashes[file]:
                raise DataError(f"{file} is damaged: its SHA-256 is not the recorded one; {AGAIN}")
    if unknown:
        with suppress(OSError):  # a folder that cannot be written is compared each time
            write_json(folder / VERIFIED, {names[file]: stamps[file] for file in hashes}, indent=None)


class TokenRow:
    """The ids of several shards as one row, from `start` to `stop`; slices of it are read."""

    def __init__(self, shards: Sequence[Shard], start: int = 0, stop: int | None = None) -> None:
        self.shards = list(shards)
        self.ends = np.cumsum([shard.record.tokens for shard in self.shards], dtype=np.int64).tolist()
        total = self.ends[-1] if self.ends else 0
        self.start, self.stop = start, total if stop is None else stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, wanted: slice) -> Ids:
        start, stop, _ = wanted.indices(len(self))
        start, stop = start + self.start, stop + self.start
        parts, number = [], bisect_right(self.ends, start)
        while start < stop:
            before = self.ends[number - 1] if number else 0
            end = min(stop, self.ends[number])
            parts.append(self.shards[number].ids[start - before : end - before])
            start, number = end, number + 1
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int32), *parts])

    def part(self, start: int, stop: int | None) -> TokenRow:
        return TokenRow(self.shards, self.start + start, self.stop if stop is None else self.start + stop)

    def document_ends(self) -> Iterator[Ids]:
        """Where documents end, the last one at the row's end; a part for each shard."""
        before = 0
        for shard, end in zip(self.shards, self.ends, strict=True):
            found = before + np.cumsum(shard.lengths, dtype=np.int64)
            inside = found[(found > self.start) & (found < self.stop)]
            last = [self.stop] if before < self.stop <= end else []
            if len(inside) or last:
                yield np.append(inside, last).astype(np.int64) - self.start
            before = end

    def document_end(self, place: int) -> int:
        """Where the document ends that an id is in; the place itself in the last document."""
        wanted = place + self.start
        number = bisect_right(self.ends, wanted)
        if number == len(self.ends):
            return place
        before = self.ends[number - 1] if number else 0
        ends = before + np.cumsum(self.shards[number].lengths, dtype=np.int64)
        end = int(ends[np.searchsorted(ends, wanted)])
        return end - self.start if end < self.stop else place


@dataclass(frozen=True)
class Manifest:
    """Record of a preparation; the same key (hash of sources, tokenizer and options) has the same bytes."""

    key: str
    tokenizer: str
    source: str
    options: Mapping[str, Any]
    shards: Sequence[ShardRecord]
    aside: int = 0
    format: int = SHARDS.version

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self.shards)

    @property
    def documents(self) -> int:
        return sum(shard.documents for shard in self.shards)

    @property
    def words(self) -> int:
        """Words of the text, 0 where a shard's were not counted."""
        counted = all(shard.words or not shard.tokens for shard in self.shards)
        return sum(shard.words for shard in self.shards) if counted else 0

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the text."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def duplicates(self) -> int:
        return sum(shard.heldout for shard in self.shards) - self.aside

    def row(self, folder: Path) -> TokenRow:
        """Open the shards after a check of their sizes, and the first time of their hashes."""
        shards = [Shard(folder, shard) for shard in self.shards]
        verify(folder, shards)
        return TokenRow(shards)


def is_prepared(folder: str | Path) -> bool:
    return (Path(folder) / MANIFEST).is_file()


def read_manifest(folder: str | Path) -> Manifest:
    place = Path(folder) / MANIFEST
    try:
        fields = read_json(place)
        SHARDS.check(fields, place)
        made = Manifest(**{**fields, "shards": tuple(ShardRecord(**shard) for shard in fields["shards"])})
    except FormatVersionError:
        raise
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{place} is damaged: {error}; {AGAIN}") from error
    if not made.tokens:
        raise DataError(f"{folder} holds no tokens; {AGAIN}")
    return made
