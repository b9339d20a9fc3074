"""What a run has come to, all its interruptions taken together."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState


class RunTotals(TrainerCallback, ExportableState):
    """Tokens and seconds of a run, kept in its checkpoints.

    Args:
        tokens: Those of the run up to the checkpoint that it goes on from.
        seconds: Likewise.
    """

    def __init__(self, tokens: int = 0, seconds: float = 0.0) -> None:
        self.tokens = tokens
        self.seconds = seconds
        self.began = time.perf_counter()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock."""
        self.began = time.perf_counter()

    def elapsed(self) -> float:
        """Seconds of the run so far.

        Returns:
            Without those between a checkpoint and the interruption that followed it.
        """
        return self.seconds + time.perf_counter() - self.began

    def pause(self, began: float) -> None:
        """Leave out what is no training, such as writing a checkpoint.

        Args:
            began: When it began, by `time.perf_counter`.
        """
        self.began += time.perf_counter() - began

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps.

        Returns:
            As transformers expects it.
        """
        return {"args": {"tokens": self.tokens, "seconds": self.elapsed()}, "attributes": {}}
