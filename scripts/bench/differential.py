"""Why differential attention is behind on `ladder`: the same decoder with its parts changed one by one.

python scripts/bench/differential.py

trains what is missing, a run in some minutes, and writes it into differential.json as soon as it is over. `--table`
writes what is recorded into docs/reasons.md. The sizes, text, rate and schedule are those of `ladder` at 0.1 M, with
fewer steps. Corpus `books` has to be there (`zoo data get books`).
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import nn
from transformers import TrainerCallback

import zoo
from zoo.base.files import replace_part
from zoo.base.printed import table_in_markdown
from zoo.models import ATTENTIONS, DifferentialAttention, ZooConfig

RECORD, PAGE = Path(__file__).with_suffix(".json"), Path(__file__).parents[2] / "docs" / "reasons.md"
HELDOUT = PAGE.parents[1] / "constraints.txt"  # Any text: that of the corpus would take longer than the training
STEPS, LAST, SEEDS = 700, 3, (0, 1)  # LAST counts hundreds of steps
SETTINGS = {
    **{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 128},
    **{"dropout": 0.0, "attention_dropout": 0.0, "intermediate_size": 256},
}
TRAINING: dict[str, Any] = {
    **{"decay": "matrices", "learning_rate": 8e-3, "warmup_steps": 100, "logging_steps": 100, "max_steps": STEPS},
    **{"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
    **{"per_device_train_batch_size": 16, "per_device_eval_batch_size": 16},
}


@ATTENTIONS.register("differential-with-gains")
class WithGains(DifferentialAttention):
    """Differential attention with the learned gains that the authors' code has in its norm."""

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        self.norm = nn.RMSNorm(2 * self.head_dim, eps=config.layer_norm_eps)


@ATTENTIONS.register("differential-without-norm")
class WithoutNorm(DifferentialAttention):
    """Differential attention without the norm of the difference."""

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        self.add_module("norm", nn.Identity())


CASES: dict[str, dict[str, Any]] = {
    "`gpt2-style`": {},
    "differential attention, equal operations": {"attention": "differential", "intermediate_size": 128},
    "differential attention": {"attention": "differential"},
    "differential attention, four heads": {"attention": "differential", "num_attention_heads": 4},
    "differential attention, learned gains": {"attention": "differential-with-gains"},
    "differential attention, no norm": {"attention": "differential-without-norm"},
    "`gpt2-style`, rotary positions": {"position": "rotary"},
    "differential attention, rotary positions": {"attention": "differential", "position": "rotary"},
    "differential attention, rotary positions, no norm": {
        "attention": "differential-without-norm",
        "position": "rotary",
    },
}
"""Trained decoders, and the settings that differ; the feed-forward network is 256 wide by default."""


class Losses(TrainerCallback):
    """Keeps the losses that a run logs, each the mean of `logging_steps` steps."""

    def __init__(self) -> None:
        self.logged: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        """Keep a loss."""
        self.logged += [logs["loss"]] if "loss" in logs else []


def last_loss(case: str, seed: int) -> float:
    """Train one model; the mean loss of its last steps. No text is read twice, so that it is of unread text."""
    task, losses = "language-modeling:block_size=128", Losses()
    given: dict[str, Any] = {"settings": SETTINGS | CASES[case], "seed": seed, "progress": False, **TRAINING}
    given |= {"heldout": HELDOUT, "scored": False, "callbacks": [losses]}
    zoo.train("gpt2-style", task, data="books", recipe="books", **given)
    return fmean(losses.logged[-LAST:])


def table(found: dict[str, float]) -> str:
    """Write the mean over the seeds of every case, and its difference from the baseline with the same positions."""
    rows = []
    for case, settings in CASES.items():
        losses = {seed: found[f"{case}, {seed}"] for seed in SEEDS if f"{case}, {seed}" in found}
        baseline = "`gpt2-style`, rotary positions" if "position" in settings else "`gpt2-style`"
        apart = [loss - found[f"{baseline}, {seed}"] for seed, loss in losses.items() if f"{baseline}, {seed}" in found]
        if losses:
            shown = "" if case == baseline or not apart else f"{fmean(apart):+.3f}"
            rows.append([case, str(len(losses)), f"{fmean(losses.values()):.3f}", shown])
    return table_in_markdown(("Decoder", "Seeds", "Loss", "Difference"), rows) + "\n"


def main() -> None:
    """Run what is missing, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="write what is recorded into the page, and run nothing")
    found: dict[str, float] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if parser.parse_args().table:
        part = "python scripts/bench/differential.py --table"
        text = replace_part(PAGE.read_text(encoding="utf-8"), part, table(found))
        PAGE.write_text(text, encoding="utf-8", newline="\n")
        return
    for seed, case in product(SEEDS, CASES):
        if (name := f"{case}, {seed}") not in found:
            found[name] = round(last_loss(case, seed), 4)
            RECORD.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
