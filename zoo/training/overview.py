"""Overview of a run's data, shown before training: columns, rows, labels, and lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from datasets import Dataset

from zoo.data.tasks import DataTask, Splits
from zoo.data.tasks.tables import NUMBERS

from .sampling import lengths_of

ROWS = 3
LONGEST_CELL = 60
MOST_LABELS = 12
MOST_BINS = 8
LONGEST_BAR = 40


def overview(task: DataTask, splits: Splits, encoded: Splits, kept: Mapping[str, int] | None = None) -> str:
    """Describe what a model is trained on, and name the sizes of the recipe that do not follow another width."""
    lines = [*shown_rows(splits), *shown_labels(task.label_counts(splits.train)), *shown_lengths(encoded)]
    if kept:
        sizes = ", ".join(f"{size}={value}" for size, value in kept.items())
        lines.append(f"Another hidden_size is given, and sizes of the recipe stay: {sizes}")
    return "\n".join(lines)


def shown_rows(splits: Splits) -> Iterator[str]:
    """The columns and the first rows."""
    examples: Dataset = splits.train
    names = [name for name in examples.column_names if name not in NUMBERS.values()]
    source = f" of {examples.info.description}" if examples.info.description else ""
    yield f"Columns{source}: {', '.join(names)}"
    for row in examples.select(range(min(ROWS, len(examples)))):
        yield f"  {' | '.join(cell(row[name]) for name in names)}"


def cell(value: object) -> str:
    """Write a value in one line."""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 3]}..."


def shown_labels(counts: Mapping[str, int]) -> Iterator[str]:
    """The labels to train on, the most frequent first."""
    if not counts:
        return
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{cell(label)} {number:,}" for label, number in ordered[:MOST_LABELS])
    others = sum(number for _, number in ordered[MOST_LABELS:])
    more = f", and {len(ordered) - MOST_LABELS:,} others {others:,}" if others else ""
    yield f"Labels: {listed}{more}"


def shown_lengths(encoded: Splits) -> Iterator[str]:
    """A histogram of tokens per example."""
    lengths = np.asarray(lengths_of(encoded.train))
    examples = f"{len(lengths):,} examples to train on and {len(encoded.heldout):,} held out"
    if not len(lengths):
        return
    if len(np.unique(lengths[:-1])) <= 1:
        yield f"Tokens: {lengths.sum():,}, in {examples}, of {lengths.max():,} each"
        return
    yield f"Tokens: {lengths.sum():,}, in {examples}:"
    yield from histogram(lengths.tolist())


def histogram(lengths: Sequence[int]) -> Iterator[str]:
    """Bars, one for each range of lengths."""
    width = -(-(max(lengths) - min(lengths) + 1) // MOST_BINS)
    starts = range(min(lengths), max(lengths) + 1, width)
    counts, _ = np.histogram(lengths, [*starts, starts[-1] + width])
    names = [f"{start:,}" if width == 1 else f"{start:,} to {start + width - 1:,}" for start in starts]
    for name, count in zip(names, counts.tolist(), strict=True):
        bar = "#" * -(-LONGEST_BAR * count // max(counts))
        yield f"  {name:>{max(map(len, names))}}  {count:>{len(f'{max(counts):,}')},} {bar}".rstrip()
