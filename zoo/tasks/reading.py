"""Reading text columns from local files, with errors that name the file and the line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from datasets import Dataset

from zoo.errors import UnknownNameError, ZooError, enumerate_names, suggest

Column = str | int
Row = tuple[int, list[str]]

LONGEST_LINE = 1_000_000
"""Bytes above which a line is taken for a mistake, such as a binary file or a missing line break."""


class DataError(ZooError, ValueError):
    """Data that cannot be used as it is. The message names the file, and the line where there is one."""


class UnknownColumnError(UnknownNameError, DataError):
    """A file has no column of this name."""

    kind = "column"


def read_columns(path: str | Path, columns: Sequence[Column] | None = None, *, count: int = 2) -> Dataset:
    """Read text columns from one file: .tsv, .csv, .jsonl or .parquet.

    TSV and CSV files begin with a line of column names, unless columns are given as numbers: then every line is data.
    TSV has no quoting, as parallel corpora have none.

    Args:
        path: The file; its suffix says what it is.
        columns: Names of the columns to read, or their numbers from 0; by default the first `count`.
        count: How many columns are wanted when none are named.

    Returns:
        A dataset with these columns of non-empty text. Columns given by number are called by it.

    Raises:
        DataError: When the file is missing, empty or damaged, or a field is missing or empty.
    """
    file = Path(path)
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise DataError(
            f"{file} has the suffix {file.suffix!r}; valid: {enumerate_names(READERS)}{suggest(file.suffix, READERS)}"
        )
    if not file.is_file():
        raise DataError(f"{file} is not a file")
    if not file.stat().st_size:
        raise DataError(f"{file} is empty")
    names, rows = reader(file, columns, count)
    values: list[list[str]] = [[] for _ in names]
    for line, fields in rows:
        for name, field, column in zip(names, fields, values, strict=True):
            text = field.strip()
            if not text:
                raise DataError(f"{file}, line {line}: column {name!r} is empty")
            column.append(text)
    if not values or not values[0]:
        raise DataError(f"{file} has no data, only a line of column names")
    return Dataset.from_dict(dict(zip(names, values, strict=True)))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Decode a file line by line."""
    with file.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if len(raw) > LONGEST_LINE:
                raise DataError(f"{file}, line {number}: {len(raw)} bytes long; at most {LONGEST_LINE} are allowed")
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{file}, line {number}: not valid UTF-8 at byte {error.start}") from error
            yield number, text


def _separated(
    file: Path, rows: Iterator[Row], columns: Sequence[Column] | None, count: int
) -> tuple[list[str], Iterable[Row]]:
    """Choose columns of rows of fields."""
    numbered = columns is not None and all(isinstance(column, int) for column in columns)
    header: list[str] = []
    if not numbered:
        _, header = next(rows)
        header = [name.strip() for name in header]
        if columns is None and len(header) < count:
            raise DataError(f"{file}, line 1: {len(header)} columns where {count} are expected")
    wanted = list(columns) if columns is not None else header[:count]
    places = [column if isinstance(column, int) else _place(column, header, file) for column in wanted]
    expected = max(len(header), max(places) + 1)

    def chosen() -> Iterator[Row]:
        for line, fields in rows:
            if len(fields) < expected:
                plural = "" if len(fields) == 1 else "s"
                raise DataError(f"{file}, line {line}: {len(fields)} field{plural} where {expected} are expected")
            yield line, [fields[place] for place in places]

    return [str(column) for column in wanted], chosen()


def _place(column: str, header: list[str], file: Path) -> int:
    if column not in header:
        raise UnknownColumnError(column, header, owner=str(file))
    return header.index(column)


def _read_tsv(file: Path, columns: Sequence[Column] | None, count: int) -> tuple[list[str], Iterable[Row]]:
    rows = ((number, text.rstrip("\r\n").split("\t")) for number, text in _lines(file) if text.strip())
    return _separated(file, rows, columns, count)


def _read_csv(file: Path, columns: Sequence[Column] | None, count: int) -> tuple[list[str], Iterable[Row]]:
    reader = csv.reader(text for _, text in _lines(file))

    def rows() -> Iterator[Row]:
        try:
            for fields in reader:
                if fields:
                    yield reader.line_num, fields
        except csv.Error as error:
            raise DataError(f"{file}, line {reader.line_num}: not valid CSV: {error}") from error

    return _separated(file, rows(), columns, count)


def _read_jsonl(file: Path, columns: Sequence[Column] | None, count: int) -> tuple[list[str], Iterable[Row]]:
    names: list[str] = [str(column) for column in columns or ()]
    rows: list[Row] = []
    for number, text in _lines(file):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except ValueError as error:
            raise DataError(f"{file}, line {number}: not valid JSON: {error}") from error
        if not isinstance(record, dict):
            raise DataError(f"{file}, line {number}: a JSON object is expected, not {type(record).__name__}")
        names = names or list(record)[:count]
        for name in names:
            if name not in record:
                raise UnknownColumnError(name, record, owner=f"{file}, line {number}")
            if not isinstance(record[name], str):
                raise DataError(f"{file}, line {number}: column {name!r} is not text")
        rows.append((number, [record[name] for name in names]))
    return names, rows


def _read_parquet(file: Path, columns: Sequence[Column] | None, count: int) -> tuple[list[str], Iterable[Row]]:
    try:
        table = Dataset.from_parquet(str(file), keep_in_memory=True)
    except Exception as error:
        raise DataError(f"{file} is not a valid Parquet file: {error}") from error
    names = [str(column) for column in columns] if columns is not None else table.column_names[:count]
    for name in names:
        if name not in table.column_names:
            raise UnknownColumnError(name, table.column_names, owner=str(file))
    rows = zip(*(table[name] for name in names), strict=True)
    return names, [
        (number, ["" if field is None else str(field) for field in row]) for number, row in enumerate(rows, 1)
    ]


READERS = {".tsv": _read_tsv, ".txt": _read_tsv, ".csv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
"""What reads which suffix."""
