"""Short trainings of small decoders, each kept in a JSON file as soon as it is over, so that a command goes on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from zoo.base.files import write_file
from zoo.training.after_steps import after_step
from zoo.training.optimizers import scaled_groups

LAST = 20  # Steps at the end of a training with losses that count


def final_loss(model: Any, batches: Iterable[Tensor], steps: int, rate: float, beta: float) -> float:
    """Train with AdamW, the rate falling to zero in a straight line; the mean loss of the last steps."""
    optimizer = torch.optim.AdamW(scaled_groups(model.train(), [], rate, 0.0), betas=(0.9, beta))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    losses = []
    for _, ids in zip(range(steps), batches, strict=False):
        loss = model(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        after_step(model)
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return fmean(losses[-LAST:])


def sizes(width: int, heads: int) -> dict[str, Any]:
    """Sizes of a decoder of a width, with feed-forward layers of twice that."""
    counts = dict.fromkeys(("num_attention_heads", "num_key_value_heads"), heads)
    return {"hidden_size": width, "intermediate_size": 2 * width, **counts}


def run_missing(
    record: Path, about: str | None, runs: Iterator[tuple[str, Callable[[], float]]]
) -> Mapping[str, float]:
    """Run what a record lacks, or with `--table` nothing; the losses by the names of the runs."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="write what is recorded, and run nothing")
    only_table = parser.parse_args().table
    found: dict[str, float] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    torch.set_num_threads(1)
    for name, run in () if only_table else runs:
        if name not in found:
            found[name] = round(run(), 4)
            write_file(record, json.dumps(found, indent=1) + "\n")
    return found
