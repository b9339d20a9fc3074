"""Where a task's examples come from: what ships with the zoo, a file, or a folder of files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset

from .reading import READERS, Column, DataError, read_columns

SHIPPED = Path(__file__).parent / "data"
"""Corpora that ship with the zoo."""

HELDOUT_NAMES = ("heldout", "validation", "valid", "dev", "test")
"""What the held-out file of a folder may be called, without its suffix."""

HELDOUT_SHARE = 0.05
MOST_HELDOUT = 1000


class Splits(NamedTuple):
    """Examples to train on, and examples to evaluate on."""

    train: Dataset
    heldout: Dataset


def load_splits(
    data: str | Path,
    *,
    heldout: str | Path | None = None,
    columns: Sequence[Column] | None = None,
    count: int = 2,
    seed: int = 0,
) -> Splits:
    """Load examples, and set some of them aside where the source does not.

    Args:
        data: A file, or a folder with a file called train and one called heldout, validation, valid, dev or test.
        heldout: The file to evaluate on; by default the folder's, or else 5 % of the examples, at most 1000.
        columns: Names of the columns to read, or their numbers from 0; by default the first `count`.
        count: How many columns are wanted when none are named.
        seed: Which examples are set aside where no file says so.

    Returns:
        Both parts, with the same columns.

    Raises:
        DataError: When there is no such file, or it cannot be used.
    """
    path = Path(data)
    if path.is_dir():
        train_file = _find(path, ("train",))
        heldout = heldout if heldout is not None else _find(path, HELDOUT_NAMES)
    elif path.exists():
        train_file = path
    else:
        raise DataError(f"{data} does not exist; give a file ({', '.join(READERS)}) or a folder of such files")
    train = read_columns(train_file, columns, count=count)
    if heldout is not None:
        names: Sequence[Column] = columns if columns is not None else train.column_names
        return Splits(train, read_columns(heldout, names, count=count))
    if len(train) < 2:
        raise DataError(f"{train_file} has one example; at least two are needed, one of them to evaluate on")
    aside = sorted(
        random.Random(seed).sample(range(len(train)), min(MOST_HELDOUT, max(1, round(HELDOUT_SHARE * len(train)))))
    )
    kept = sorted(set(range(len(train))).difference(aside))
    return Splits(train.select(kept), train.select(aside))


def _find(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        for suffix in READERS:
            if (file := folder / f"{name}{suffix}").is_file():
                return file
    raise DataError(f"{folder} has no file called {' or '.join(names)} ({', '.join(READERS)})")
