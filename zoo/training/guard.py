"""What ends a run that has gone wrong, before it spoils what it has saved."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from zoo.errors import ZooError

HINT = "a lower learning_rate or more warmup_steps may help"


class TrainingError(ZooError, RuntimeError):
    """A training run that cannot go on."""


class LossGuard:
    """Remembers the first step whose loss was no number, without waiting for a GPU at every step.

    Args:
        device: Where losses are computed.
        find_kept: Finds the last checkpoint, if there is one.
    """

    def __init__(self, device: torch.device, find_kept: Callable[[], str | None]) -> None:
        self.find_kept = find_kept
        self.step = torch.full((), -1, dtype=torch.long, device=device)
        self.loss = torch.zeros((), device=device)

    def see(self, loss: torch.Tensor, step: int) -> None:
        """Look at a loss.

        Args:
            loss: The loss of one batch.
            step: The number of the update that it is for.

        Raises:
            TrainingError: On a CPU, when it is no number.
        """
        first_bad = ~loss.isfinite() & (self.step < 0)
        self.step = torch.where(first_bad, step, self.step)
        self.loss = torch.where(first_bad, loss.float(), self.loss)
        if loss.device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Look back.

        Raises:
            TrainingError: When a loss was no number.
        """
        step = int(self.step.item())
        if step >= 0:
            raise TrainingError(f"the loss is {self.loss.item()} at step {step}; {HINT}{kept_text(self.find_kept())}")


def check_weights(model: nn.Module, step: int, kept: str | None) -> None:
    """Refuse to save weights that are no numbers.

    Args:
        model: The model.
        step: How many updates it has had.
        kept: The last checkpoint, if there is one.

    Raises:
        TrainingError: With the first such parameter.
    """
    for name, parameter in model.named_parameters():
        if not math.isfinite(parameter.detach().sum(dtype=torch.float32).item()):
            if bool(parameter.detach().isfinite().all()):
                continue
            raise TrainingError(f"{name} holds values that are no numbers after step {step}; {HINT}{kept_text(kept)}")


def kept_text(checkpoint: str | None) -> str:
    """Say what is left of a run.

    Args:
        checkpoint: The last checkpoint, if there is one.

    Returns:
        The end of a message.
    """
    return f"; {checkpoint} is the last good checkpoint" if checkpoint else ""
