"""Progress bars with the live loss, and a stop where there is no loss any more."""

from __future__ import annotations

import math
from typing import Any

from transformers import ProgressCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from zoo.errors import ZooError


class TrainingError(ZooError, RuntimeError):
    """A training run that cannot go on."""


class LossProgress(ProgressCallback):
    """transformers' progress bar, with a name before it and the loss behind it instead of lines of logs.

    Args:
        name: What is being trained.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Name the bar."""
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description(self.name)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Name the bar of the evaluation."""
        super().on_prediction_step(args, state, control, **kwargs)
        if self.prediction_bar is not None:
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


class StopWithoutLoss(TrainerCallback):
    """Ends a run whose loss is no longer a number."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Look at the loss.

        Raises:
            TrainingError: When it is infinite or not a number.
        """
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} at step {state.global_step}; a lower learning_rate or more warmup_steps may help"
            )
