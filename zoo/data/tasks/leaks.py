"""Examples to train on that are held-out examples as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zoo.base.errors import DataError

from .mapped import values_of
from .sources import Splits
from .tables import Kind

if TYPE_CHECKING:
    from datasets import Dataset

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


def contents(examples: Dataset, kinds: Sequence[Kind]) -> Iterator[tuple[str, ...]]:
    """Write examples without labels so that equal ones are equal, whatever blanks are around them."""
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
