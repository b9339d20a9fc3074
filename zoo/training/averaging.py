"""Averages of the weights of a run's last part, with an evaluation of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from zoo.base.errors import CheckpointError, ConfigError, InvalidChoiceError
from zoo.models import normalize_weights
from zoo.models.precision import at_least_float32

from .arguments import ZooTrainingArguments

AVERAGES = {
    "ema": "An exponential moving average.",
    "lawa": "The plain mean (LAWA, Kaddour 2022), as with average_steps between two checkpoints.",
}
"""Values of `average`."""

FILE = "average.safetensors"
UPDATES = "updates"


class WeightAverage(TrainerCallback):
    """Averages the weights, and the buffers that are saved with them, in the last part of a run."""

    def __init__(self, model: nn.Module, args: ZooTrainingArguments) -> None:
        InvalidChoiceError.check(args.average, valid=AVERAGES, kind="average")
        if args.fsdp or args.deepspeed:
            raise ConfigError(f"average={args.average} was given, and weights of shards are not averaged: leave it out")
        self.model, self.kind, self.last, self.steps = model, args.average, args.average_last, args.average_steps
        self.average = get_ema_multi_avg_fn(args.average_decay) if args.average == "ema" else get_swa_multi_avg_fn()
        self.weights: dict[str, Tensor] = {}
        self.updates = 0
        saved = model.state_dict()
        self.buffers = [name for name, one in model.named_buffers() if one.is_floating_point() and name in saved]

    def current(self) -> dict[str, Tensor]:
        """The model's own tensors that are averaged, by name."""
        buffers = {name: self.model.get_buffer(name) for name in self.buffers}
        return {name: one.detach() for name, one in (*self.model.named_parameters(), *buffers.items())}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        left = state.max_steps - state.global_step
        if left < self.last * state.max_steps and left % self.steps == 0:
            self.update()

    @torch.no_grad()
    def update(self) -> None:
        current = self.current()
        if not self.weights:
            self.weights = {name: one.to(at_least_float32(one.dtype), copy=True) for name, one in current.items()}
        else:
            of_kind = torch.tensor(self.updates)
            averaged = [current[name].to(weight.dtype) for name, weight in self.weights.items()]
            self.average(list(self.weights.values()), averaged, of_kind)
        self.updates += 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        own = {name: weight.clone() for name, weight in self.current().items()}
        try:
            self._put(self.weights)
            normalize_weights(self.model)  # a mean of vectors of length one is shorter
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, weights: dict[str, Tensor]) -> None:
        for name, weight in self.current().items():
            weight.copy_(weights[name])

    def save(self, checkpoint: Path) -> None:
        if self.weights:
            save_file({**self.weights, UPDATES: torch.tensor(self.updates)}, checkpoint / FILE)

    def load(self, checkpoint: Path) -> None:
        if (checkpoint / FILE).is_file():
            read = load_file(checkpoint / FILE)
            self.updates = int(read.pop(UPDATES))
            current = self.current()
            if missing := sorted(current.keys() - read.keys()):
                raise CheckpointError(
                    f"{checkpoint / FILE} has no average of {missing[0]}: an earlier version wrote it; train the model "
                    "again"
                )
            self.weights = {name: read[name].to(weight.device) for name, weight in current.items()}
