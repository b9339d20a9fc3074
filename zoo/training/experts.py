"""Training mixtures of experts: what evens out how much each is used."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from zoo.models.feed_forwards import balance_experts


class ExpertBalance(TrainerCallback):
    """Moves the balancing bias of routers after every update of the weights."""

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **kwargs: Any
    ) -> None:
        """Even out the use of experts. transformers calls it behind the optimiser's step."""
        balance_experts(model)
