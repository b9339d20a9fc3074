"""Where a task's examples come from: what ships, a file, a folder of files, or a dataset of the `datasets` library."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ConfigError, DataError, suggest
from zoo.base.files import JOIN, mixed_sources
from zoo.data.corpora.sources import HELDOUT_NAMES, TRAIN_NAMES
from zoo.registry import CORPORA

from .libraries import dataset_splits, is_dataset_name, is_saved_dataset
from .mapped import ROWS_AT_ONCE, values_of
from .reading import PAIR, READERS, documents, read_table, rows_of, table_of
from .tables import NUMBERS, Column, Kind, Table, checked_rows, chosen_columns

if TYPE_CHECKING:
    from datasets import Dataset

SHIPPED = Path(__file__).parent / "data"
"""Corpora that ship with the zoo."""


HELDOUT_SHARE = 0.05
MOST_HELDOUT = 1000


@dataclass(frozen=True)
class DataSource:
    """Where examples come from, so that they can be found again.

    Attributes:
        data: A file's or folder's full path, a corpus that ships with the zoo, or a dataset's name on the Hub; None for
            what the task has itself.
        heldout: The full path of the file to evaluate on, None for that of `data`.
        columns: Names or numbers of the columns to read, None for the usual ones.
        seed: Seed of the examples that are set aside without a held-out file.
    """

    data: str | None = None
    heldout: str | None = None
    columns: Sequence[Column] | None = None
    seed: int = 0

    @classmethod
    def of(
        cls, data: str | Path | None, heldout: str | Path | None, columns: Sequence[Column] | None, seed: int
    ) -> DataSource:
        """Describe where data are, with full paths, for a process that may run elsewhere.

        `data` are a file or folder, or a dataset's name on the Hub; `seed` is which examples are set aside.
        """
        return cls(full_path(data), full_path(heldout), None if columns is None else list(columns), seed)


@dataclass(frozen=True)
class Splits:
    """Examples to train on, and examples to evaluate on.

    Attributes:
        train: Those to train on.
        heldout: Those to evaluate on.
        source: Where they come from, None if unknown.
        duplicates: How many examples to train on were left out because they are held out as well.
        is_divided: Whether the held-out ones were set aside, from a source without a held-out part.
    """

    train: Dataset
    heldout: Dataset
    source: DataSource | None = None
    duplicates: int = 0
    is_divided: bool = False

    def __iter__(self) -> Iterator[Dataset]:
        return iter((self.train, self.heldout))


def full_path(data: str | Path | None) -> str | None:
    """Write files and folders, those of a mixture too, with their full paths; other names stay as they are."""
    if data is None:
        return None
    if (shares := shares_of(str(data))) is not None:
        return JOIN.join(f"{full_path(name)}={Decimal(f'{share:g}'):f}" for name, share in shares.items())
    return str(Path(data).absolute()) if Path(data).exists() else str(data)


def shares_of(data: str) -> dict[str, float] | None:
    """Shares of a mixture "NAME=SHARE+NAME=SHARE", which add up to 1; None of others, and of a path of that name."""
    found = mixed_sources(data)
    if not found or Path(data).exists():
        return None
    shares = {name: float(share) for name, share in found}
    if len(shares) < len(found):
        raise ConfigError(f"{data!r} names a source twice")
    if empty := next((name for name, share in shares.items() if not share), None):
        raise ConfigError(f"{data!r} gives {empty} a share of 0; leave it out")
    return {name: share / sum(shares.values()) for name, share in shares.items()}


def load_splits(
    data: str | Path,
    *,
    heldout: str | Path | None = None,
    columns: Sequence[Column] | None = None,
    kinds: Sequence[Kind] = PAIR,
    seed: int = 0,
    mismatch: Callable[[Table, Table], str | None] = lambda train, heldout: None,
) -> Splits:
    """Load examples, and set some of them aside where the source does not.

    Args:
        data: A file; a folder with a file called train and one called heldout, validation, valid, dev or test, or
            their shards (train-00000-of-00002.parquet, also in a folder data); a folder that `datasets` has saved;
            corpora that ship with the zoo ("en_pt", or several: "en_pt+phrases"); or a dataset's name on the Hub, with
            a configuration after a colon if needed.
        heldout: The file to evaluate on; by default the source's, or else 5 % of the examples, at most 1000.
        columns: Names of the columns to read, or their numbers from 0; by default those named like what they hold,
            and else the first ones.
        kinds: Kind of content of each column.
        seed: Seed of the examples that are set aside without a held-out file.
        mismatch: Compares examples to train on with held-out ones from another file, and returns what is wrong.

    Returns:
        Both parts, with the same columns.

    Raises:
        DataError: When the source does not exist or cannot be used.
    """
    train, found = load_tables(data, columns, kinds, with_heldout=heldout is None)
    if heldout is not None:
        found = read_table(heldout, columns if columns is not None else list(train.columns), kinds=kinds)
    if found is not None:
        if (problem := mismatch(train, found)) is not None:
            raise DataError(problem)
        return Splits(train.dataset(), found.dataset())
    if len(train) < 2:
        raise DataError(f"{train.source} has one example; at least two are needed, one of them to evaluate on")
    return set_aside(train.dataset(), seed)


def set_aside(examples: Dataset, seed: int) -> Splits:
    import numpy as np

    number = min(MOST_HELDOUT, max(1, round(HELDOUT_SHARE * len(examples))))
    aside = sorted(random.Random(seed).sample(range(len(examples)), number))
    kept = np.delete(np.arange(len(examples)), aside)
    return Splits(examples.select(kept), examples.select(aside), is_divided=True)


def load_tables(
    data: str | Path, columns: Sequence[Column] | None, kinds: Sequence[Kind], *, with_heldout: bool
) -> tuple[Table, Table | None]:
    path = Path(data)
    if not path.exists() and set(corpora := str(data).split(JOIN)) <= set(shipped_corpora()):
        return load_corpora(corpora, columns, kinds)
    if path.is_file():
        return read_table(path, columns, kinds=kinds), None
    if path.is_dir() and not is_saved_dataset(path):
        train = read_files(find_files(path, TRAIN_NAMES), f"{data}, train", columns, kinds)
        if not with_heldout:
            return train, None
        names = columns if columns is not None else list(train.columns)
        return train, read_files(find_files(path, HELDOUT_NAMES), f"{data}, held-out", names, kinds)
    if not path.exists() and not is_dataset_name(str(data)):
        raise DataError(
            f"{data} does not exist; give a file ({', '.join(READERS)}), a folder of such files, a dataset's name, or "
            f"a corpus that ships with the zoo ({', '.join(shipped_corpora())})"
            f"{suggest(str(data), [*shipped_corpora(), *CORPORA.names()])}"
        )
    splits = dataset_splits(data)
    first = next((splits[name] for name in TRAIN_NAMES if name in splits), next(iter(splits.values())))
    names = HELDOUT_NAMES if with_heldout else ()
    second = next((splits[name] for name in names if name in splits and splits[name] is not first), None)
    train = table_of(first, f"{data}, train" if second is not None else str(data), columns, kinds)
    if second is None:
        return train, None
    return train, table_of(second, f"{data}, held-out", list(train.columns), kinds)


def load_corpora(names: Sequence[str], columns: Sequence[Column] | None, kinds: Sequence[Kind]) -> tuple[Table, Table]:
    """Load corpora that ship with the zoo, and join what they hold to train on."""
    files = [find_file(SHIPPED / name, TRAIN_NAMES) for name in names]
    train = read_files(files, JOIN.join(names), columns, kinds)
    heldout = find_file(SHIPPED / names[0], HELDOUT_NAMES)
    return train, read_table(heldout, columns or list(train.columns), kinds=kinds)


def read_files(files: Sequence[Path], source: str, columns: Sequence[Column] | None, kinds: Sequence[Kind]) -> Table:
    """Read files with the same columns as one table, with rows that are counted through."""
    from datasets import concatenate_datasets

    first, *others = tables = [read_table(file, columns, kinds=kinds) for file in files]
    if not others:
        return first
    names = list(first.columns)
    if other := next((table for table in others if list(table.columns) != names), None):
        problem = f"{source} cannot be joined: {other.source} has the columns {', '.join(other.columns)}"
        raise DataError(f"{problem}, and {first.source} has {', '.join(names)}")
    rows = concatenate_datasets([table.dataset().select_columns(names) for table in tables])
    rows.info.description = source
    numbers = range(1, len(rows) + 1)
    numbered = rows if NUMBERS["row"] in names else rows.add_column(NUMBERS["row"], list(numbers))
    return Table(source, {name: rows[name] for name in names}, numbers, "row", numbered)


def shipped_corpora() -> list[str]:
    return sorted(folder.name for folder in SHIPPED.iterdir() if folder.is_dir())


def find_file(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        for suffix in READERS:
            if (file := folder / f"{name}{suffix}").is_file():
                return file
    raise DataError(f"{folder} has no file called {' or '.join(names)} ({', '.join(READERS)})")


def find_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """The file that has one of some names, or its shards in a folder or its `data`, as `datasets` reads them."""
    places = [(name, place, suffix) for name in names for place in (folder, folder / "data") for suffix in READERS]
    shards = (sorted(place.glob(f"{name}-?????-of-?????{suffix}")) for name, place, suffix in places)
    return next(filter(None, shards), []) or [find_file(folder, names)]


LISTS = (Kind.TOKENS, Kind.TAGS)  # Kinds of columns with a list in each row
ANSWERS = (Kind.LABEL, Kind.TAGS)  # Kinds of columns by which a text that is held out is not another one


def without_leaks(splits: Splits, kinds: Sequence[Kind]) -> Splits:
    """Leave out of the training examples what is held out, with any label; shards are compared at preparation."""
    from datasets import Dataset

    if not isinstance(splits.train, Dataset):
        return splits
    heldout = set(contents(splits.heldout, kinds))
    kept = [row for row, content in enumerate(contents(splits.train, kinds)) if content not in heldout]
    duplicates = len(splits.train) - len(kept)
    if not duplicates:
        return splits
    if not kept:
        raise DataError(f"all {duplicates:,} examples to train on are held-out examples as well")
    return replace(splits, train=splits.train.select(kept), duplicates=splits.duplicates + duplicates)


def given_examples(examples: Any, kinds: Sequence[Kind], columns: Sequence[Column] | None = None) -> Any:
    """Choose columns of a dataset that was loaded elsewhere, as of a file; raw texts are a document each."""
    from datasets import Dataset

    if not (isinstance(examples, Dataset) and len(examples)):
        return examples
    names, owner = [name for name in examples.column_names if name not in NUMBERS.values()], "the given dataset"
    is_text = len(kinds) == 1
    if is_text and columns is None and are_parts(examples):
        return examples.select_columns(["text", "document"])
    is_read = examples.info.description and len(names) == len(kinds) < len(examples.column_names)  # from a file
    if columns is None and is_read:
        return examples
    chosen = chosen_columns(names, kinds, columns, owner)
    examples = examples.select_columns(chosen)
    if is_text:
        return documents(table_of(examples, owner, chosen, kinds).column(0))
    parts = (
        examples.select(range(i, min(i + ROWS_AT_ONCE, len(examples)))) for i in range(0, len(examples), ROWS_AT_ONCE)
    )
    deque(checked_rows(owner, chosen, kinds, enumerate(rows_of(parts, chosen), start=1), "row"), maxlen=0)
    for name, kind in zip(chosen, kinds, strict=True):
        feature = examples.features[name]
        inner = getattr(feature, "feature", None)
        if (inner is not None) != (kind in LISTS) or getattr(inner or feature, "dtype", None) != "string":
            values = table_of(examples.select_columns(name), owner, [name], [kind]).column(0)
            examples = examples.remove_columns(name).add_column(name, values).select_columns(examples.column_names)
    return examples


def are_parts(examples: Dataset) -> bool:
    """Whether a dataset has texts, and for each the document that it is a part of."""
    return {"text", "document"} <= {*examples.column_names}


def contents(examples: Dataset, kinds: Sequence[Kind]) -> Iterator[tuple[str, ...]]:
    """Write examples without labels so that they are equal where they differ by blanks around them alone."""
    named = zip(examples.column_names, kinds, strict=False)  # further columns are places of the rows
    columns = [values_of(examples, name) for name, kind in named if kind not in ANSWERS]
    return (tuple(str(value).strip() for value in row) for row in zip(*columns, strict=True))


def leaks_message(splits: Splits) -> str:
    number = splits.duplicates
    found, they = ("1 example is", "it is") if number == 1 else (f"{number:,} examples are", "they are")
    return (
        f"{found} among those to train on and among the held-out ones; {they} not trained on, which leaves "
        f"{len(splits.train):,}"
    )
