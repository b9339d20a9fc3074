"""Progress bars with the live loss."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import ProgressCallback, TrainerControl, TrainerState, TrainingArguments

LOG_INTERVAL = 30.0
"""Seconds between two states of a bar in a file."""


def slow_in_a_file(bar: tqdm) -> None:
    """Draw a bar seldom where nobody sees it move: every state of it stays in a log."""
    notebook = sys.modules.get("tqdm.notebook")  # which imports IPython, and is there where a bar of it is
    if bar.disable:  # by TQDM_DISABLE=1; such a bar has no file
        return
    if not (notebook and isinstance(bar, notebook.tqdm_notebook)) and not bar.fp.isatty():
        bar.mininterval = bar.maxinterval = LOG_INTERVAL


def begin_at(bar: tqdm, done: int) -> None:
    """Let a new bar begin where work is already done, none of which counts for its rate."""
    bar.n = bar.initial = bar.last_print_n = done


class LossProgress(ProgressCallback):
    """transformers' progress bar, with a name before it and the loss behind it instead of lines of logs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Name the bar."""
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.current_step = state.global_step
            begin_at(self.training_bar, state.global_step)  # where resumed
            slow_in_a_file(self.training_bar)
            self.training_bar.set_description(self.name)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Name the bar of the evaluation."""
        begins = self.prediction_bar is None
        super().on_prediction_step(args, state, control, **kwargs)
        if begins and self.prediction_bar is not None:
            begin_at(self.prediction_bar, 1)  # done before the bar was there
            slow_in_a_file(self.prediction_bar)
            self.prediction_bar.set_description(f"{self.name}, evaluation")

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Show the loss."""
        shown = {key: f"{logs[key]:.3f}" for key in ("loss", "eval_loss") if logs and key in logs}
        if self.training_bar is not None and shown:
            self.training_bar.set_postfix(shown, refresh=False)
