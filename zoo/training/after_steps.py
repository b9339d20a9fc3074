"""Callbacks after updates and by the clock, and totals of a run over its interruptions."""

from __future__ import annotations

import time
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from zoo.models import normalize_weights
from zoo.models.feed_forwards.routing import SigmoidRouter, balance_experts
from zoo.models.unit import UnitWeights


class Clock(TrainerCallback):
    """Seconds of a run, with those before an interruption."""

    def __init__(self, before: float = 0.0) -> None:
        self.before, self.began = before, time.perf_counter()

    def on_train_begin(self, *_: Any, **kwargs: Any) -> None:
        self.began = time.perf_counter()

    def elapsed(self) -> float:
        return self.before + time.perf_counter() - self.began


class RunTotals(Clock, ExportableState):
    """Tokens, seconds and losses of a run, kept in its checkpoints.

    A checkpoint that would be written at the last step of an epoch is written at the epoch's end: an evaluation may
    come in between, which a run that goes on from the checkpoint would leave out.
    """

    def __init__(self, tokens: int = 0, seconds: float = 0.0, logged_step: int = 0, loss: float = 0.0) -> None:
        super().__init__(seconds)
        self.tokens = tokens
        self.logged_step = logged_step
        self.loss = loss
        self.saves_at_epoch_end = False

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Put off a checkpoint that the end of the epoch follows."""
        last = control.should_training_stop or float(state.epoch or 0).is_integer()
        if control.should_save and last:
            control.should_save, self.saves_at_epoch_end = False, True

    def on_epoch_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        if self.saves_at_epoch_end:
            control.should_save, self.saves_at_epoch_end = True, False

    def pause(self, began: float) -> None:
        """Leave out what is no training: an evaluation, or writing a checkpoint."""
        self.began += time.perf_counter() - began

    def state(self) -> dict[str, Any]:
        losses = {"logged_step": self.logged_step, "loss": self.loss}
        return {"args": {"tokens": self.tokens, "seconds": self.elapsed(), **losses}, "attributes": {}}


class AfterSteps(TrainerCallback):
    """Moves the balancing bias of routers, and normalises weights that have length one, after every update.

    `zoo train` has it; transformers' own trainer takes it among its callbacks.
    """

    def __init__(self) -> None:
        self.is_needed = True

    def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **kwargs: Any) -> None:
        """Find out whether the model has such parts."""
        self.is_needed = any(isinstance(module, (SigmoidRouter, UnitWeights)) for module in model.modules())

    def on_optimizer_step(self, args: Any, state: Any, control: Any, model: nn.Module, **kwargs: Any) -> None:
        """Do both. transformers calls it after the optimiser's step."""
        if self.is_needed:
            after_step(model)


def after_step(model: nn.Module) -> None:
    """After an update of the weights: move the balancing bias of routers, and normalise weights of length one."""
    balance_experts(model)
    normalize_weights(model)


ENDLESS = 1_000_000  # Number of updates of a run that the clock ends


class TimeBudget(Clock, ExportableState):
    """Ends a run after a number of seconds, and moves its learning rate by the clock.

    A schedule needs to know where the end is: after half of the seconds, the learning rate is what it would be after
    half of the updates. The run is to have `ENDLESS` updates, and its warm-up to be a share of them; `used` are the
    seconds up to the checkpoint that it goes on from.
    """

    def __init__(self, seconds: float, used: float = 0.0) -> None:
        super().__init__(used)
        self.seconds = seconds

    def on_step_end(
        self, args: Any, state: TrainerState, control: TrainerControl, lr_scheduler: Any = None, **kwargs: Any
    ) -> None:
        part = self.elapsed() / self.seconds
        if part >= 1:
            control.should_training_stop = True
        schedule = getattr(lr_scheduler, "scheduler", lr_scheduler)
        if hasattr(schedule, "lr_lambdas"):
            place = int(min(part, 1.0) * state.max_steps)
            rates = [base * at(place) for base, at in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)]
            for group, rate in zip(schedule.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            schedule._last_lr = rates

    def state(self) -> dict[str, Any]:
        return {"args": {"seconds": self.seconds, "used": self.elapsed()}, "attributes": {}}


class TimedCheckpoints(Clock):
    """Saves a checkpoint whenever enough time has passed, so that short runs save none and long ones lose little."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.elapsed() >= self.seconds:
            control.should_save = True

    on_save = Clock.on_train_begin
