"""Callbacks by the clock: the end of a run, and its checkpoints."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

ENDLESS = 1_000_000  # Number of updates of a run that the clock ends


class TimeBudget(TrainerCallback, ExportableState):
    """Ends a run after a number of seconds, and moves its learning rate by the clock.

    A schedule needs to know where the end is: after half of the seconds, the learning rate is what it would be after
    half of the updates. The run is to have `ENDLESS` updates, and its warm-up to be a share of them.

    Args:
        seconds: How long the run may take, its evaluations included.
        used: Seconds up to the checkpoint that it goes on from.
    """

    def __init__(self, seconds: float, used: float = 0.0) -> None:
        self.seconds = seconds
        self.used = used
        self.began = time.perf_counter()

    def on_train_begin(self, *_: Any, **kwargs: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        **kwargs: Any,
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

    def elapsed(self) -> float:
        """Seconds of the run so far."""
        return self.used + time.perf_counter() - self.began

    def state(self) -> dict[str, Any]:
        return {"args": {"seconds": self.seconds, "used": self.elapsed()}, "attributes": {}}


class TimedCheckpoints(TrainerCallback):
    """Saves a checkpoint whenever enough time has passed, so that short runs save none and long ones lose little."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = time.perf_counter()

    def on_train_begin(self, *_: Any, **kwargs: Any) -> None:
        self.last = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if time.perf_counter() - self.last >= self.seconds:
            control.should_save = True

    def on_save(self, *_: Any, **kwargs: Any) -> None:
        self.last = time.perf_counter()
