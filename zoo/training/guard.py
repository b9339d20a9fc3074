"""Callbacks that end a run that has gone wrong, before it overwrites good checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments
from transformers.debug_utils import DebugUnderflowOverflow

from zoo.base.errors import ZooError, raised_as

HINT = "a lower learning_rate or more warmup_steps may help"


class TrainingError(ZooError, RuntimeError):
    """A training run that cannot go on."""


def memory_explained(args: TrainingArguments) -> AbstractContextManager[None]:
    def message(error: Exception) -> str:
        size = f"per_device_train_batch_size={args.per_device_train_batch_size}"
        return f"the memory of {args.device} is not enough for {size}: take {smaller_steps(args)}"

    return raised_as(TrainingError, message, torch.OutOfMemoryError)


def smaller_steps(args: TrainingArguments) -> str:
    size, batches = args.per_device_train_batch_size, args.gradient_accumulation_steps
    advice = [] if args.gradient_checkpointing else ["gradient_checkpointing=True, which computes layers again"]
    if size > 1:
        smaller = f"per_device_train_batch_size={size // 2} and gradient_accumulation_steps={2 * batches}"
        advice.insert(0, f"{smaller}, which come to the same updates")
    return "; or ".join(advice or ["shorter sequences or a smaller model"])


class LossGuard:
    """Records the first step with a loss that is no number, without a device sync at every step."""

    def __init__(self, device: torch.device, find_kept: Callable[[], str | None]) -> None:
        self.find_kept = find_kept
        self.step = torch.full((), -1, dtype=torch.long, device=device)
        self.loss = torch.zeros((), device=device)

    def see(self, loss: Tensor, step: int) -> None:
        if loss.device.type == "cpu" and math.isfinite(loss.item()):
            return
        first_bad = ~loss.isfinite() & (self.step < 0)
        self.step = torch.where(first_bad, step, self.step)
        self.loss = torch.where(first_bad, loss.float(), self.loss)
        if loss.device.type == "cpu":
            self.check()

    def check(self) -> None:
        step = int(self.step.item())
        if step >= 0:
            raise TrainingError(f"the loss is {self.loss.item()} at step {step}; {HINT}{kept_text(self.find_kept())}")


class OverflowFinder(DebugUnderflowOverflow):
    """The search of `debug="underflow_overflow"`, which of transformers fails at masks and at empty tensors."""

    def __init__(self, model: nn.Module, *, hooks: ExitStack) -> None:
        self.hooks = hooks
        super().__init__(model)

    def _register_forward_hook(self, module: nn.Module) -> None:
        """Watch a module until `hooks` are closed."""
        self.hooks.callback(module.register_forward_hook(self.forward_hook).remove)

    def analyse_variable(self, var: Any, ctx: str) -> None:
        """Note the range of a value."""
        if torch.is_tensor(var) and (var.dtype == torch.bool or not var.numel()):
            var = f"{var.dtype} {tuple(var.shape)}"
        super().analyse_variable(var, ctx)


def check_weights(model: nn.Module, step: int, kept: str | None) -> None:
    for name, parameter in model.named_parameters():
        weight = parameter.detach()
        if not math.isfinite(weight.sum(dtype=torch.float32).item()) and not weight.isfinite().all():
            raise TrainingError(f"{name} holds values that are no numbers after step {step}; {HINT}{kept_text(kept)}")


def kept_text(checkpoint: str | None) -> str:
    return f"; {checkpoint} is the last good checkpoint" if checkpoint else ""
