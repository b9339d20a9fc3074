"""Documents of text files, JSON lines, parquet and data sets of the Hub, in pieces that are read independently."""

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from zoo.base.errors import DataError, enumerate_names, raised_as

HUB = "hf:"  # Prefix of the name of a data set on the Hub, in a piece

COMPRESSED = (".gz", ".zst")
KINDS = (".txt", ".jsonl", ".parquet")
SPLITS = (".train", ".dev", ".test")  # Suffixes of texts that BabyLM's corpora have, by their split

TRAIN_NAMES = ("train",)
HELDOUT_NAMES = ("heldout", "validation", "valid", "dev", "test")
"""Names of the files of a folder, and of the splits of a dataset, to train on and to evaluate on."""

TEXT_COLUMNS = ("text", "content", "sentence", "document")
"""Columns that are read unless one is named: the first that exists."""


@dataclass(frozen=True)
class Piece:
    """A part of a file."""

    file: str  # The file, or "hf:" and a data set's name on the Hub
    # First byte, row group (parquet) or shard (Hub). Of text, lines that begin in the piece belong to it.
    start: int = 0
    stop: int | None = None  # The end, exclusive; None for the whole file
    last: bool = True  # Whether it ends the file


@dataclass(frozen=True)
class Part:
    """A document, or a part of one that is longer than a piece."""

    text: str
    begins: bool = True
    ends: bool = True


LONGEST_PART = 1 << 23  # Bytes of a text that are held at once, and compared with held-out ones
LONGEST_LINE = 1 << 27  # Bytes of the longest line


class BadLineError(DataError):
    """A line or row that is not valid."""


def kind_of(file: str | Path) -> str:
    """Suffix of a file, without that of a compression; `.txt` for BabyLM's suffixes."""
    path = Path(file)
    suffix = (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix.lower()
    return ".txt" if suffix in SPLITS else suffix


def files_of(source: Path) -> list[Path]:
    if source.is_file():
        found = [source] if kind_of(source) in KINDS else []
    else:
        found = sorted(file for file in source.rglob("*") if file.is_file() and kind_of(file) in KINDS)
    if not found:
        valid = enumerate_names([*KINDS, *(f".jsonl{suffix}" for suffix in COMPRESSED)])
        raise DataError(f"{source} is no source of text, and holds none; valid: {valid}")
    return found


def plan(files: Sequence[Path], size: int, end: int | None = None) -> list[list[Piece]]:
    """Divide files into shards of about `size` bytes; compressed files and row groups of parquet stay whole."""
    shards: list[list[Piece]] = [[]]
    room = size
    for file in files:
        for piece, length in pieces_of(file, size, end):
            if shards[-1] and length > room:
                shards.append([])
                room = size
            shards[-1].append(piece)
            room -= length
    return shards


def pieces_of(file: Path, size: int, end: int | None = None) -> Iterator[tuple[Piece, int]]:
    """Divide a file, with the bytes of each piece."""
    total = file.stat().st_size if end is None else end
    if kind_of(file) == ".parquet":
        from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

        with readable(file), ParquetFile(file) as parquet:
            groups = parquet.num_row_groups
            for group in range(groups):
                length = parquet.metadata.row_group(group).total_byte_size
                yield Piece(str(file), group, group + 1, group + 1 == groups), length
    elif file.suffix in COMPRESSED or (total <= size and end is None):
        yield Piece(str(file)), total
    else:
        for start in range(0, total, size):
            stop = min(start + size, total)
            yield Piece(str(file), start, stop, stop == total), stop - start


def parts_of(piece: Piece, column: str | None, skip: Callable[[BadLineError], None]) -> Iterator[Part]:
    if piece.file.startswith(HUB):
        yield from hub_rows(piece, column, skip)
        return
    kind = kind_of(piece.file)
    if kind == ".parquet":
        yield from parquet_rows(piece, column, skip)
    elif kind == ".jsonl":
        for number, _, raw in lines_of(piece):
            if not raw.strip():
                continue
            try:
                yield Part(text_of(json.loads(raw), column))
            except ValueError as error:
                skip(BadLineError(f"{piece.file}, line {line_number(piece, number)}: {reason_of(error)}"))
    else:
        yield from text_parts(piece, skip)


def text_parts(piece: Piece, skip: Callable[[BadLineError], None]) -> Iterator[Part]:
    """Read a piece of a text file, which is one document, without the lines that are not UTF-8.

    Parts begin where `LONGEST_PART` divides the places of the file, so that those of equal files are equal.
    """
    good: list[str] = []
    begins, part = piece.start == 0, piece.start // LONGEST_PART
    for number, place, raw in lines_of(piece):
        if place // LONGEST_PART > part:
            yield Part("".join(good), begins, ends=False)
            good, begins, part = [], False, place // LONGEST_PART
        try:
            good.append(raw.decode("utf-8-sig" if number == 0 and piece.start == 0 else "utf-8"))
        except UnicodeDecodeError as error:
            skip(BadLineError(f"{piece.file}, line {line_number(piece, number)}: {reason_of(error)}"))
    yield Part("".join(good), begins, ends=piece.last)


def lines_of(piece: Piece) -> Iterator[tuple[int, int, bytes]]:
    """Lines that begin in a piece, numbered from 0, with their first bytes in the file."""
    with readable(piece.file), opened(piece.file) as stream:
        place = piece.start
        if piece.start:
            stream.seek(piece.start - 1)
            place = piece.start - 1 + len(stream.readline())
        number = 0
        while (piece.stop is None or place < piece.stop) and (raw := stream.readline(LONGEST_LINE + 1)):
            if len(raw) > LONGEST_LINE:
                where = f"{piece.file}, line {line_number(piece, number)}"
                raise DataError(f"{where}: longer than {LONGEST_LINE:,} bytes, which are held at once")
            yield number, place, raw
            place, number = place + len(raw), number + 1


def opened(file: str) -> BinaryIO:
    if file.endswith(".gz"):
        return gzip.open(file, "rb")  # type: ignore[return-value]
    if file.endswith(".zst"):
        import pyarrow  # type: ignore[import-untyped]

        return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.OSFile(file), "zstd"))
    return Path(file).open("rb")


def line_number(piece: Piece, number: int) -> int:
    if not piece.start:
        return number + 1
    before = 0
    with Path(piece.file).open("rb") as stream:
        left = piece.start
        while left and (block := stream.read(min(left, 1 << 20))):
            before, left, last = before + block.count(b"\n"), left - len(block), block[-1:]
    return before + number + (1 if last == b"\n" else 2)


def text_of(record: Any, column: str | None) -> str:
    wanted = (column,) if column is not None else TEXT_COLUMNS
    name = next((name for name in wanted if isinstance(record, dict) and name in record), None)
    if name is None:
        raise ValueError(f"no {' or '.join(wanted)}")
    if not isinstance(record[name], str):
        raise ValueError(f"{name} is {type(record[name]).__name__} and no text")
    record[name].encode()  # half of a surrogate pair cannot be written
    return record[name]


def reason_of(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not valid UTF-8 at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON at character {error.pos}: {error.msg}"
    return str(error)


def parquet_rows(piece: Piece, column: str | None, skip: Callable[[BadLineError], None]) -> Iterator[Part]:
    """Read row groups of a parquet file, a thousand rows at a time."""
    from pyarrow.parquet import ParquetFile

    with readable(piece.file), ParquetFile(piece.file) as parquet:
        names = parquet.schema_arrow.names
        name = column or next((name for name in TEXT_COLUMNS if name in names), None)
        if name not in names:
            problem = f"{piece.file} has no column {column or ' or '.join(TEXT_COLUMNS)}"
            raise DataError(f"{problem}; it has {', '.join(names)}")
        groups = range(piece.start, piece.stop if piece.stop is not None else parquet.num_row_groups)
        row = sum(parquet.metadata.row_group(group).num_rows for group in range(piece.start))
        for batch in parquet.iter_batches(1000, row_groups=list(groups), columns=[name]):
            for value in batch.column(0).to_pylist():
                row += 1
                if isinstance(value, str):
                    yield Part(value)
                else:
                    skip(BadLineError(f"{piece.file}, row {row}: {name} is {type(value).__name__} and no text"))


def hub_rows(piece: Piece, column: str | None, skip: Callable[[BadLineError], None]) -> Iterator[Part]:
    """Stream one shard of a split of a data set."""
    with streamable(piece.file):
        rows = streamed(piece.file).shard(num_shards=piece.stop or 1, index=piece.start)
        for number, record in enumerate(rows, start=1):
            try:
                yield Part(text_of(record, column))
            except ValueError as error:
                skip(BadLineError(f"{piece.file}, shard {piece.start}, row {number}: {reason_of(error)}"))


def streamed(name: str) -> Any:
    """Open a split on the Hub for streaming: "hf:org/name#split", "hf:org/name:configuration@revision#split"."""
    name, _, split = name.partition("#")
    with streamable(name):
        return load_dataset(**address_of(name), split=split or "train", streaming=True)


def hub_splits(name: str) -> list[str]:
    with streamable(name):
        return list(load_dataset(**address_of(name), streaming=True))


def load_dataset(**given: Any) -> Any:
    from datasets import load_dataset as load

    return load(**given)


def address_of(name: str) -> dict[str, str | None]:
    address, _, revision = name.removeprefix(HUB).partition("@")
    repository, _, configuration = address.partition(":")
    return {"path": repository, "name": configuration or None, "revision": revision or None}


def explained(problem: str) -> AbstractContextManager[None]:
    """Raise DataError in one line for an error of any library that reads files."""
    return raised_as(
        DataError, lambda error: f"{problem}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", Exception
    )


def readable(file: str | Path) -> AbstractContextManager[None]:
    return explained(f"{file} cannot be read")


def streamable(name: str) -> AbstractContextManager[None]:
    return explained(f"data set {name.removeprefix(HUB)} cannot be streamed")


BORDER = re.compile(r"(?<=\S)\n(?=\S)")
"""A single line break: pre-tokenizers end a piece after it, while of several they may split off the last."""

PART_LENGTH = 1 << 16  # Characters after which a part of a long text ends at the next chance


def cut(text: str) -> Iterator[str]:
    """Cut a text where no token reaches across."""
    begin = 0
    while border := BORDER.search(text, begin + PART_LENGTH - 1):
        yield text[begin : border.end()]
        begin = border.end()
    if begin < len(text):
        yield text[begin:]
