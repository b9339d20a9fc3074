"""What some parts need after every update of the weights."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from zoo.models import normalize_weights
from zoo.models.feed_forwards import balance_experts
from zoo.models.feed_forwards.routing import SigmoidRouter
from zoo.models.unit import UnitWeights


class AfterSteps(TrainerCallback):
    """Moves the balancing bias of routers, and normalises weights that have length one, after every update.

    `zoo train` has it; transformers' own trainer takes it among its callbacks.
    """

    def __init__(self) -> None:
        self.is_needed = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        """Find out whether the model has such parts."""
        self.is_needed = any(isinstance(module, (SigmoidRouter, UnitWeights)) for module in model.modules())

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        """Do both. transformers calls it after the optimiser's step."""
        if self.is_needed:
            after_step(model)


def after_step(model: nn.Module) -> None:
    """After an update of the weights: move the balancing bias of routers, and normalise weights of length one."""
    balance_experts(model)
    normalize_weights(model)
