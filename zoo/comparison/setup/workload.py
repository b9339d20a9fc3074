"""From a budget to updates: what an update works on, and how many of them there are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset

from zoo.base.errors import ConfigError
from zoo.data.tasks.streaming import StreamedRow
from zoo.training.arguments import ZooTrainingArguments
from zoo.training.clocks import ENDLESS
from zoo.training.preflight import measure

from ..request.budget import Budget


@dataclass(frozen=True)
class Workload:
    """The workload of an update."""

    steps: int  # Updates that the recipe wants
    # Tokens in the mean update, counted as the trainer counts them: without padding, and of source and target where
    # there are both
    tokens_per_step: float
    source_len: int  # Tokens in the mean example that is read
    target_len: int | None  # Tokens in the mean example that a decoder with an encoder writes, None without


def workload(encoded: Any, args: ZooTrainingArguments, *, writes: bool) -> Workload:
    """Count what an update works on."""
    if isinstance(getattr(encoded, "ids", None), StreamedRow):
        raise ConfigError("a comparison reads shards, which are encoded once for all of its runs: leave streaming out")
    batches = math.ceil(len(encoded) / (args.train_batch_size * args.world_size))
    steps_per_epoch = max(1, math.ceil(batches / args.gradient_accumulation_steps))
    source = measure(encoded, "input_ids")[0] if isinstance(encoded, Dataset) else np.array(encoded.lengths)
    target = measure(encoded, "labels")[0] if writes else None
    tokens = int(source.sum()) + (0 if target is None else int(target.sum()))
    return Workload(
        steps=args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * steps_per_epoch),
        tokens_per_step=tokens / steps_per_epoch,
        source_len=max(1, round(float(source.mean()))),
        target_len=None if target is None else max(1, round(float(target.mean()))),
    )


def spend(budget: Budget | None, work: Workload, flops_per_token: float) -> dict[str, Any]:
    """Turn a budget into training arguments."""
    if budget is None:
        return {}
    if budget.kind == "seconds":
        return {"max_steps": ENDLESS}
    cost = {"steps": 1.0, "tokens": work.tokens_per_step, "flops": work.tokens_per_step * flops_per_token}[budget.kind]
    steps = round(budget.amount / cost)
    if steps < 1:
        raise ConfigError(f"the budget {budget} is less than one update, which takes {cost:,.0f} {budget.kind}")
    return {"max_steps": steps}


def share_of_warmup(args: ZooTrainingArguments, work: Workload) -> dict[str, Any]:
    """Give a warm-up that was meant for a run of another length its share of this one, if it is not one already."""
    if args.warmup_steps < 1:
        return {}
    return {"warmup_steps": min(round(args.warmup_steps / work.steps, 6), 0.99)}
