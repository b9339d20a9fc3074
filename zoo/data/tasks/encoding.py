"""Examples as ids, within a length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .mapped import TooLongError
from .tables import NUMBERS

if TYPE_CHECKING:
    from datasets import Dataset


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
        raise TooLongError(
            f"{source}: all {len(lengths)} examples have more than max_length={max_length} tokens; "
            f"the shortest has {min(lengths)}"
        )
    return kept


def short_rows(
    inputs: Sequence[Sequence[int]], labels: Sequence[Sequence[int]], max_length: int | None, examples: Dataset
) -> Dataset:
    """Make a dataset of the rows that are not too long."""
    from datasets import Dataset

    kept = short_enough(list(map(len, inputs)), max_length, examples)
    columns = {"input_ids": [inputs[i] for i in kept], "labels": [labels[i] for i in kept]}
    return Dataset.from_dict({**columns, "length": [len(inputs[i]) for i in kept]})
