"""What a run has come to, all its interruptions taken together, and when that is saved."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState


class RunTotals(TrainerCallback, ExportableState):
    """Tokens, seconds and losses of a run, kept in its checkpoints.

    A checkpoint that would be written at the last step of an epoch is written at the epoch's end: an evaluation may
    come in between, which a run that goes on from the checkpoint would leave out.
    """

    def __init__(self, tokens: int = 0, seconds: float = 0.0, logged_step: int = 0, loss: float = 0.0) -> None:
        self.tokens = tokens
        self.seconds = seconds
        self.logged_step = logged_step
        self.loss = loss
        self.began = time.perf_counter()
        self.saves_at_epoch_end = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock."""
        self.began = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Put off a checkpoint that the end of the epoch follows."""
        last = control.should_training_stop or float(state.epoch or 0).is_integer()
        if control.should_save and last:
            control.should_save, self.saves_at_epoch_end = False, True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the checkpoint that was put off."""
        if self.saves_at_epoch_end:
            control.should_save, self.saves_at_epoch_end = True, False

    def elapsed(self) -> float:
        """Seconds of the run so far."""
        return self.seconds + time.perf_counter() - self.began

    def pause(self, began: float) -> None:
        """Leave out what is no training, such as writing a checkpoint."""
        self.began += time.perf_counter() - began

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        losses = {"logged_step": self.logged_step, "loss": self.loss}
        return {"args": {"tokens": self.tokens, "seconds": self.elapsed(), **losses}, "attributes": {}}
