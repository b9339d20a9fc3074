"""Progress bars with the live loss."""

from __future__ import annotations

from typing import Any

from transformers import ProgressCallback, TrainerControl, TrainerState, TrainingArguments


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
