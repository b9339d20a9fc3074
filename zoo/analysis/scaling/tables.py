"""Plans as rows of a table, for terminals and documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from zoo.base.printed import table_in_markdown

from .planning import Plan

GIB = 2**30

COLUMNS = (
    *("Devices", "Strategy", "Batch", "Weights", "Gradients", "Optimiser", "Gathered", "Activations", "Logits"),
    *("GiB in all", "Tokens/s at most", "Bound"),
)


def row(plan: Plan) -> tuple[str, ...]:
    again = ", layers computed again" if plan.checkpointing else ""
    sizes = [f"{size / GIB:.1f}" for size in dataclasses.astuple(plan.memory)]
    speed = f"{plan.tokens_per_second:,.0f}"
    batch = f"{plan.batches} × {plan.sequences}"
    total = f"{plan.memory.total / GIB:.1f}"
    return (f"{plan.devices}", f"{plan.strategy.value}{again}", batch, *sizes, total, speed, plan.roofline.bound)


def heading(plan: Plan) -> str:
    return (
        f"{plan.name} for {plan.task}: {plan.num_parameters:,} parameters, sequences of {plan.seq_len:,} tokens, "
        f"{plan.device.name} with {plan.available / GIB:.1f} GiB"
    )


def to_markdown(plans: Iterable[Plan]) -> str:
    plans = list(plans)
    rule = ["---:", "---", *["---:"] * (len(COLUMNS) - 3), "---"]
    lines = [f"**{heading(plans[0])}**", "", table_in_markdown(COLUMNS, map(row, plans), rule)]
    for plan in plans:
        lines += ["", f"On {plan.devices}:", "", "```sh", (plan.slurm or plan.command).rstrip(), "```"]
    return "\n".join(lines) + "\n"
