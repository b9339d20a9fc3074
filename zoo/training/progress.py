"""Progress bars with the live loss, and an overview of the data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerState

from zoo.data.tasks import DataTask, Splits
from zoo.data.tasks.streaming import is_streamed
from zoo.data.tasks.tables import NUMBERS

from .sampling import lengths_of, tokens_in

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
    examples: Dataset = splits.train
    names = [name for name in examples.column_names if name not in NUMBERS.values()]
    source = f" of {examples.info.description}" if examples.info.description else ""
    yield f"Columns{source}: {', '.join(names)}"
    for row in examples.select(range(min(ROWS, len(examples)))):
        yield f"  {' | '.join(cell(row[name]) for name in names)}"


def cell(value: object) -> str:
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
    if is_streamed(encoded.train):
        yield f"Tokens: streamed, in blocks of {lengths[0]:,}; {len(encoded.heldout):,} examples are held out"
        return
    examples = f"{len(lengths):,} examples to train on and {len(encoded.heldout):,} held out"
    if not len(lengths):
        return
    if len(np.unique(lengths[:-1])) <= 1:
        yield f"Tokens: {tokens_in(encoded.train):,}, in {examples}, of {lengths.max():,} each"
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


LOG_INTERVAL = 30.0  # Seconds between two states of a bar in a file


def slow_in_a_file(bar: tqdm) -> None:
    """Draw a bar seldom outside of terminals: every state of it stays in a log."""
    notebook = sys.modules.get("tqdm.notebook")  # which imports IPython, and is there where a bar of it is
    if bar.disable:  # by TQDM_DISABLE=1; such a bar has no file
        return
    if not (notebook and isinstance(bar, notebook.tqdm_notebook)) and not bar.fp.isatty():
        bar.mininterval = bar.maxinterval = LOG_INTERVAL


def begin_at(bar: tqdm, done: int) -> None:
    """Begin a new bar after work that is already done, which does not count for its rate."""
    bar.n = bar.initial = bar.last_print_n = done


def show_progress(trainer: Trainer, name: str | None) -> None:
    """Show a bar with a name in place of transformers' bars and lines of logs, or nothing without a name."""
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    if name is not None:
        trainer.add_callback(LossProgress(name))


class LossProgress(ProgressCallback):
    """transformers' progress bar, with a name before it and the loss after it instead of lines of logs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.current_step = state.global_step
            begin_at(self.training_bar, state.global_step)  # where resumed
            slow_in_a_file(self.training_bar)
            self.training_bar.set_description(self.name)

    def on_prediction_step(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        begins = self.prediction_bar is None
        super().on_prediction_step(args, state, control, **kwargs)
        if begins and self.prediction_bar is not None:
            begin_at(self.prediction_bar, 1)  # done before the bar was there
            slow_in_a_file(self.prediction_bar)
            self.prediction_bar.set_description(f"{self.name}, evaluation")

    def on_log(self, *_: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        shown = {key: f"{logs[key]:.3f}" for key in ("loss", "eval_loss") if logs and key in logs}
        if self.training_bar is not None and shown:
            self.training_bar.set_postfix(shown, refresh=False)
