"""Rows of a file or of a dataset with their line numbers, also as ids within a length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.base.errors import DataError, UnknownNameError, ZooWarning
from zoo.data.corpora.sources import TEXT_COLUMNS

from .mapped import ROWS_AT_ONCE, TooLongError, is_large, mapped_rows

if TYPE_CHECKING:
    from datasets import Dataset

Column = str | int

NUMBERS = {"line": "line_number", "row": "row_number"}
"""Columns of datasets with the places of rows in their source, by unit."""


class Kind(Enum):
    """Kind of a column."""

    TEXT = "text"
    """Text that is not empty."""
    SOURCE = "source"
    """Text that is not empty, and may be called anything."""
    LABEL = "label"
    """A label: a word, or a number."""
    TOKENS = "tokens"
    """Tokens: a list, or text with blanks between them."""
    TAGS = "tags"
    """A label a token: a list, or text with blanks between them."""

    @property
    def usual_names(self) -> tuple[str, ...]:
        """Names that such columns often have, the most common one first."""
        return USUAL_NAMES[self]


USUAL_NAMES = {
    Kind.TEXT: TEXT_COLUMNS,
    Kind.SOURCE: (),
    Kind.LABEL: ("label", "labels", "class", "category", "sentiment", "target"),
    Kind.TOKENS: ("tokens", "words"),
    Kind.TAGS: ("tags", "labels", "ner_tags", "pos_tags"),
}

NUMBERS_OF_ROWS = {"id", "ids", "idx", "index", "row", "key", "guid", "uuid", "unnamed"}
"""Last words in the names of columns that number rows, and are read only if they are given."""


class DataWarning(ZooWarning):
    """Data that can be used, and are probably not what was meant."""


class UnknownColumnError(UnknownNameError, DataError):
    """A file has no column of this name."""

    kind = "column"


@dataclass(frozen=True)
class Table:
    """Columns of values."""

    source: str  # The file or dataset that they come from
    columns: Mapping[str, Sequence[Any]]  # The columns by their names, all of one length
    lines: Sequence[int]  # Place of each row in the source, from 1
    unit: str = "line"  # Unit of `lines`: "line" or "row"
    mapped: Dataset | None = None  # The same as a dataset that is mapped into memory, where the rows are not in it

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        return f"{self.source}, {self.unit} {self.lines[row]}"

    def column(self, number: int) -> Sequence[Any]:
        return list(self.columns.values())[number]

    def dataset(self) -> Dataset:
        from datasets import Dataset, DatasetInfo

        if self.mapped is not None:
            return self.mapped
        numbers = {} if NUMBERS[self.unit] in self.columns else {NUMBERS[self.unit]: list(self.lines)}
        return Dataset.from_dict({**self.columns, **numbers}, info=DatasetInfo(description=self.source))


def place_of(examples: Any, row: int) -> str | None:
    from datasets import Dataset

    if not isinstance(examples, Dataset) or not examples.info.description:
        return None
    for unit, name in NUMBERS.items():
        # A column of texts may be called so as well.
        if name in examples.column_names and isinstance(number := examples[name][row], int):
            return f"{examples.info.description}, {unit} {number}"
    return None


def make_table(
    source: str | Path, names: Sequence[str], kinds: Sequence[Kind], rows: Any, *, unit: str = "line"
) -> Table:
    if len(set(names)) < len(names):
        raise DataError(f"{source}: column {names[0]!r} was given twice; give different columns")
    checked = checked_rows(source, names, kinds, rows, unit)
    number = NUMBERS[unit]
    if is_large(source) and number not in names:
        decides = [unit, *(kind.value for kind in kinds)]
        dataset = mapped_rows(str(source), names, decides, columns_of(checked, [*names, number], ROWS_AT_ONCE))
        columns = {name: dataset[name] for name in names}
        return Table(str(source), columns, dataset[number], unit, dataset)
    *kept, lines = map(list, zip(*checked, strict=True))
    return Table(str(source), dict(zip(names, kept, strict=True)), lines, unit)


def checked_rows(
    source: str | Path, names: Sequence[str], kinds: Sequence[Kind], rows: Any, unit: str
) -> Iterator[list[Any]]:
    line = None
    for line, values in rows:
        checked = []
        for name, kind, value in zip(names, kinds, values, strict=True):
            try:
                checked.append(checked_value(value, kind))
            except ValueError as error:
                raise DataError(f"{source}, {unit} {line}: column {name!r} {error}") from None
        if kinds[-1] is Kind.TAGS and len(checked[-1]) != len(checked[0]):
            raise DataError(f"{source}, {unit} {line}: {len(checked[0])} tokens and {len(checked[-1])} labels")
        yield [*checked, line]
    if line is None:
        raise DataError(f"{source} has no data")


def columns_of(rows: Iterable[list[Any]], names: Sequence[str], at_once: int) -> Iterator[dict[str, list[Any]]]:
    """Put some rows at a time into columns."""
    waiting = iter(rows)
    while part := list(islice(waiting, at_once)):
        yield {name: [row[place] for row in part] for place, name in enumerate(names)}


def checked_value(value: Any, kind: Kind) -> Any:
    if value is None or value == "" or (isinstance(value, str) and not value.strip()):
        raise ValueError("is empty; leave the row out, or name other columns (--columns)")
    if kind in (Kind.TOKENS, Kind.TAGS):
        parts = value.split() if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)):
            raise ValueError("is no list")
        if not parts:
            raise ValueError("is empty")
        return [checked_value(part, Kind.LABEL) for part in parts]
    if kind is Kind.LABEL and isinstance(value, (int, bool)):
        return str(value)
    if not isinstance(value, str):
        raise ValueError("is not text")
    value.encode()  # half of a surrogate pair cannot be written
    # Labels are names. Text stays as it is, blanks at its ends too: so pipelines read it as well.
    return value.strip() if kind is Kind.LABEL else value


def chosen_columns(
    available: Sequence[str], kinds: Sequence[Kind], columns: Sequence[Column] | None, owner: str | Path
) -> list[str]:
    if columns is None:
        if len(available) < len(kinds):
            raise DataError(
                f"{owner}: {len(available)} column{'' if len(available) == 1 else 's'} where {len(kinds)} are expected"
            )
        return columns_by_name(available, kinds)
    check_number(kinds, columns, owner)
    chosen = []
    for column in columns:
        if isinstance(column, int) and column < len(available):
            column = available[column]
        UnknownColumnError.check(column, valid=available, owner=owner)
        chosen.append(str(column))
    return chosen


def columns_by_name(available: Sequence[str], kinds: Sequence[Kind]) -> list[str]:
    """Choose a column for every kind: one with a usual name, else one with such a word in its name, else the next.

    Columns that number rows are left out if enough others remain.
    """
    others = [name for name in available if name and not {*words_of(name)[-1:]} & NUMBERS_OF_ROWS]
    available = others if len(others) >= len(kinds) else available
    chosen: dict[Kind, str] = {}
    for names_of in (lambda name: [name], words_of):
        for kind in kinds:
            found = [name for usual in kind.usual_names for name in available if usual in names_of(name)]
            free = (name for name in found if name not in chosen.values())
            if kind not in chosen and (name := next(free, None)) is not None:
                chosen[kind] = name
    rest = (name for name in available if name not in chosen.values())
    return [chosen[kind] if kind in chosen else next(rest) for kind in kinds]


def words_of(name: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", name.casefold())


def check_number(kinds: Sequence[Kind], columns: Sequence[Column], owner: str | Path) -> None:
    if len(columns) != len(kinds):
        plural = "" if len(columns) == 1 else "s"
        raise DataError(f"{owner}: {len(columns)} column{plural} given where {len(kinds)} are expected")


def encoded(columns: Mapping[str, Any], examples: Dataset, kept: Sequence[int] | None = None) -> Dataset:
    """Make a dataset of encoded examples with their lines in the source."""
    from datasets import Dataset, DatasetInfo

    rows = examples if kept is None else examples.select(kept)
    # A slice reads a column at once; a dataset's row costs thirty times as much.
    numbers = {name: rows[name][:] for name in NUMBERS.values() if name in rows.column_names}
    return Dataset.from_dict({**columns, **numbers}, info=DatasetInfo(description=examples.info.description))


def short_enough(lengths: Sequence[int], max_length: int | None, examples: Dataset) -> list[int]:
    kept = [i for i, length in enumerate(lengths) if max_length is None or length <= max_length]
    if not kept and len(lengths):
        source = examples.info.description or "the data"
        problem = f"{source}: all {len(lengths)} examples have more than max_length={max_length} tokens"
        raise TooLongError(f"{problem}; the shortest has {min(lengths)}")
    return kept


def short_rows(
    inputs: Sequence[Sequence[int]], labels: Sequence[Sequence[int]], max_length: int | None, examples: Dataset
) -> Dataset:
    from datasets import Dataset

    kept = short_enough(list(map(len, inputs)), max_length, examples)
    columns = {"input_ids": [inputs[i] for i in kept], "labels": [labels[i] for i in kept]}
    return Dataset.from_dict({**columns, "length": [len(inputs[i]) for i in kept]})
