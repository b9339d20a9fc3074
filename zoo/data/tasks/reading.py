"""Reading columns from local files, with errors that name the file and the line."""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.base.errors import DataError, enumerate_names, first_line, raised_as, suggest

from .tables import Column, DataWarning, Kind, Table, UnknownColumnError, check_number, chosen_columns, make_table

if TYPE_CHECKING:
    from datasets import Dataset

Row = tuple[int, list[Any]]

LONGEST_LINE = 1_000_000
"""Bytes above which a line is taken for a mistake, such as a binary file or a missing line break."""

NAME = re.compile(r"[^\W\d]\w*(?:[.-]\w+)*")  # Pattern of a column's name; other first lines may be data

COMMENT = re.compile(r"# \S+ = ")  # Line before a sentence of a CoNLL file, "# name = value"

BORDER = "-DOCSTART-"  # First field of a line between two documents of a CoNLL file

PAIR = (Kind.SOURCE, Kind.SOURCE)


def read_columns(path: str | Path, columns: Sequence[Column] | None = None, *, kinds: Sequence[Kind] = PAIR) -> Dataset:
    """Read columns from one file. Arguments and errors as of `read_table`."""
    return read_table(path, columns, kinds=kinds).dataset()


def read_table(path: str | Path, columns: Sequence[Column] | None = None, *, kinds: Sequence[Kind] = PAIR) -> Table:
    """Read columns from one file: .tsv, .txt, .csv, .jsonl, .parquet or .conll."""
    file = Path(path)
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        problem = f"{file} has the suffix {file.suffix!r}"
        raise DataError(f"{problem}; valid: {enumerate_names(READERS)}{suggest(file.suffix, READERS)}")
    if not file.is_file():
        raise DataError(f"{file} is not a file")
    if not file.stat().st_size:
        raise DataError(f"{file} is empty")
    return reader(file, columns, kinds)


def read_lines(file: Path) -> Iterator[tuple[int, str]]:
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


def read_separated(file: Path, rows: Iterator[Row], columns: Sequence[Column] | None, kinds: Sequence[Kind]) -> Table:
    """Choose columns of rows of fields; the first row has names unless columns are given by number."""
    is_named = columns is None or not all(isinstance(column, int) for column in columns)
    if columns is not None and not is_named:
        check_number(kinds, columns, file)
        places = [column for column in columns if isinstance(column, int)]
        names, expected = [str(place) for place in places], max(places) + 1
        begin = list(islice(rows, 1))
        for line, fields in begin:
            if len(fields) >= expected:
                warn_of_header(file, line, [fields[place].strip() for place in places], kinds)
        rows = chain(begin, rows)
    else:
        first, header = next(rows, (1, []))
        header = [name.strip() for name in header]
        names = chosen_columns(header, kinds, columns, f"{file}, line {first}" if columns is None else file)
        if columns is None and not all(NAME.fullmatch(name) for name in names):
            called, numbers = " and ".join(map(repr, names)), ",".join(map(str, range(len(kinds))))
            taken = f"{file}, line {first} was taken for the names of columns, and those called {called} are read"
            better = f"if that line is data, give the columns' numbers: --columns {numbers}"
            warnings.warn(f"{taken}; {better}", DataWarning, stacklevel=2)
        for name in names:
            if header.count(name) > 1:
                problem = f"{file}, line {first}: {header.count(name)} columns are called {name!r}"
                raise DataError(f"{problem}; rename them, or give the columns' numbers")
        places, expected = [header.index(name) for name in names], len(header)

    def chosen() -> Iterator[Row]:
        for line, fields in rows:
            if len(fields) < expected or (is_named and any(field.strip() for field in fields[expected:])):
                plural = "" if len(fields) == 1 else "s"
                raise DataError(f"{file}, line {line}: {len(fields)} field{plural} where {expected} are expected")
            yield line, [fields[place] for place in places]

    return make_table(file, names, kinds, chosen())


def warn_of_header(file: Path, line: int, fields: Sequence[str], kinds: Sequence[Kind]) -> None:
    """Warn if the first row of a file that is all data has the usual name of a column."""
    usual = [name for name, kind in zip(fields, kinds, strict=True) if name.casefold() in kind.usual_names]
    if usual:
        taken = f"{file}, line {line} is read as data, and has the name {usual[0]!r}"
        better = f"if it has the names of columns, give these instead of numbers: --columns {','.join(fields)}"
        warnings.warn(f"{taken}; {better}", DataWarning, stacklevel=2)


def read_tsv(file: Path, columns: Sequence[Column] | None, kinds: Sequence[Kind]) -> Table:
    """Read fields between tabs. Arguments as of `read_table`."""
    rows = ((number, text.rstrip("\r\n").split("\t")) for number, text in read_lines(file) if text.strip())
    return read_separated(file, rows, columns, kinds)


def read_csv(file: Path, columns: Sequence[Column] | None, kinds: Sequence[Kind]) -> Table:
    """Read fields between commas, possibly quoted. Arguments as of `read_table`."""
    reader = csv.reader((text for _, text in read_lines(file)), strict=True)  # else a lone quote takes all that follows

    def rows() -> Iterator[Row]:
        line = 0
        try:
            for fields in reader:
                line = reader.line_num
                if fields:
                    yield line, fields
        except csv.Error as error:
            raise DataError(f"{file}, line {line + 1}: not valid CSV: {error}") from error

    return read_separated(file, rows(), columns, kinds)


def read_jsonl(file: Path, columns: Sequence[Column] | None, kinds: Sequence[Kind]) -> Table:

    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, text in read_lines(file):
            if not text.strip():
                continue
            try:
                record = json.loads(text, object_pairs_hook=unique_names)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{file}, line {number}: not valid JSON: {error}") from error
            if not isinstance(record, dict):
                raise DataError(f"{file}, line {number}: a JSON object is expected, not {type(record).__name__}")
            yield number, record

    def rows() -> Iterator[Row]:
        for number, record in chain(first, read):
            UnknownColumnError.check(*names, valid=record, owner=f"{file}, line {number}")
            yield number, [record[name] for name in names]

    read = records()
    first = list(islice(read, 1))
    names = [
        name for number, one in first for name in chosen_columns(list(one), kinds, columns, f"{file}, line {number}")
    ]
    return make_table(file, names, kinds, rows())


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object, and refuse a repeated name, for which Python's reader keeps the last value."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("an object has a name twice")
    return record


def read_parquet(file: Path, columns: Sequence[Column] | None, kinds: Sequence[Kind]) -> Table:
    import pyarrow as pa  # type: ignore[import-untyped]
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    from .mapped import ROWS_AT_ONCE

    def flat(table: pa.Table) -> Dataset:
        return Dataset(InMemoryTable(table)).flatten()  # and not `from_parquet`, which shows progress and fills a cache

    def parts() -> Iterator[Dataset]:
        with valid_parquet(file), parquet:
            read = [name for name in schema.names if any(one == name or one.startswith(f"{name}.") for one in names)]
            for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=read):
                yield flat(pa.Table.from_batches([batch]))

    with valid_parquet(file):
        parquet = ParquetFile(file)
        schema = parquet.schema_arrow
        available = flat(schema.empty_table()).column_names
    names = chosen_columns(available, kinds, columns, file)
    return make_table(file, names, kinds, enumerate(rows_of(parts(), names), start=1), unit="row")


def valid_parquet(file: Path) -> AbstractContextManager[None]:
    return raised_as(DataError, lambda error: f"{file} is not a valid Parquet file: {first_line(error)}", Exception)


def read_conll(file: Path, columns: Sequence[Column] | None, kinds: Sequence[Kind]) -> Table:
    """Read a token a line, by default with its label in the last column. Arguments as of `read_table`.

    Fields are between tabs if the line has any, else between blanks. Comments are lines before a sentence that begin
    with `# ` and are `# name = value`, or have other fields than tokens, or an equals sign and no label of other lines.
    """
    if kinds[-1] is not Kind.TAGS:
        raise DataError(f"{file}: CoNLL files hold labels of tokens, as for token-classification")
    names = [kind.usual_names[0] for kind in kinds]
    places = [0, -1]
    if columns is not None and list(columns) != names:
        check_number(kinds, columns, file)
        if not all(isinstance(column, int) for column in columns):
            raise DataError(f"{file}: the columns of CoNLL files have no names; give their numbers from 0")
        places = [int(column) for column in columns]
        names = [str(place) for place in places]
    expected = max(1 - min(places), max(places) + 1, 2)
    rows: list[Row] = []
    begins = True
    lines = [(number, text.strip()) for number, text in read_lines(file)]
    plain = [line for _, line in lines if line and not line.startswith(("# ", BORDER))]
    usual = shape_of(plain[0]) if plain else None
    labels = {conll_fields(line)[places[-1]] for line in plain if usual == shape_of(line) and usual[1] >= expected}
    for number, line in lines:
        fields = conll_fields(line)
        if not line or fields[0] == BORDER:
            begins = True
            continue
        if begins and line.startswith("# ") and (COMMENT.match(line) or usual not in (None, shape_of(line))):
            continue
        if begins and line.startswith("# ") and len(fields) >= expected and fields[places[-1]] not in labels:
            if "=" in line:
                continue
            raise DataError(
                f"{file}, line {number}: {line!r} is a comment, or the token '#' with a label that no other line has; "
                "write '# name = value', or the token with tabs between its fields"
            )
        if len(fields) < expected:
            raise DataError(f"{file}, line {number}: {len(fields)} field where {expected} are expected")
        if begins:
            rows.append((number, [[], []]))
            begins = False
        for parts, place in zip(rows[-1][1], places, strict=True):
            parts.append(fields[place])
    return make_table(file, names, kinds, rows)


def conll_fields(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else re.split(" +", line)


def shape_of(line: str) -> tuple[bool, int]:
    """Separator and number of fields of a line of a CoNLL file."""
    return "\t" in line, len(conll_fields(line))


def table_of(dataset: Dataset, source: str | Path, columns: Sequence[Column] | None, kinds: Sequence[Kind]) -> Table:
    """Choose columns of a dataset; labels that it keeps as numbers become their names."""
    dataset = dataset.flatten()
    names = chosen_columns(dataset.column_names, kinds, columns, source)
    return make_table(source, names, kinds, enumerate(rows_of([dataset], names), start=1), unit="row")


def rows_of(parts: Iterable[Dataset], names: Sequence[str]) -> Iterator[Iterable[Any]]:
    for part in parts:
        yield from zip(*(named_labels(part, name) for name in names), strict=True)


def named_labels(dataset: Dataset, column: str) -> list[Any]:
    from datasets import ClassLabel

    feature = dataset.features[column]
    inner = getattr(feature, "feature", None)

    def named(value: Any, label: Any) -> str | None:
        return None if value is None or value < 0 else label.int2str(value)

    if isinstance(feature, ClassLabel):
        return [named(value, feature) for value in dataset[column]]
    if isinstance(inner, ClassLabel):
        return [row and [named(value, inner) for value in row] for row in dataset[column]]
    return list(dataset[column])


Reader = Callable[[Path, "Sequence[Column] | None", Sequence[Kind]], Table]

READERS: dict[str, Reader] = {
    ".tsv": read_tsv,
    ".txt": read_tsv,
    ".csv": read_csv,
    ".jsonl": read_jsonl,
    ".parquet": read_parquet,
    ".conll": read_conll,
}
"""Readers by suffix."""


def documents(texts: Iterable[str]) -> Dataset:
    from datasets import Dataset

    listed = list(texts)
    return Dataset.from_dict({"text": listed, "document": list(range(len(listed)))})
