"""Loss after a short training, with 0.02 at every width and with initial values by width.

`python scripts/bench/initial_values.py` trains on one thread with AdamW on characters of the English that ships with
the zoo. Recorded runs are not run again; `--table` writes the table of docs/training.md from them.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import zoo
from zoo.base.files import replace_part, write_file
from zoo.training.after_steps import after_step
from zoo.training.optimizers import scaled_groups

RECORD = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[2] / "docs" / "training.md"
TEXT = Path(zoo.__file__).parent / "data" / "tasks" / "data" / "en_pt" / "train.tsv"

VARIANTS = {
    "dense": "gpt2-style",
    "gated": "gpt2-style:feed_forward=swiglu",
    "experts": "gpt2-style:feed_forward=moe",
    "RMSNorm, gated": "llama-style",
    "dynamic tanh": "gpt2-style:norm=dyt",
    "no norm, ReZero": "rezero",
}
STEPS = {32: 400, 128: 120, 512: 30}
RATES = {32: 3e-3, 128: 3e-3, 512: 1e-3}
SEEDS = {32: (0, 1), 128: (0,), 512: (0,)}
ROWS, LENGTH, LAST = 8, 64, 20
RULES = {"0.02": {"initializer_width": 1}, "by width": {}}


def text() -> tuple[Tensor, int]:
    """Read the text as numbers of characters; how many characters there are is the second."""
    read = "\n".join(line.split("\t")[0] for line in TEXT.read_text(encoding="utf-8").splitlines())
    known = {character: number for number, character in enumerate(sorted(set(read)))}
    return torch.tensor([known[character] for character in read]), len(known)


def final_loss(name: str, width: int, rule: str, seed: int) -> float:
    """Train one model, the rate falling to zero in a straight line; the mean loss of the last steps."""
    numbers, size = text()
    heads = max(2, width // 32)
    sizes = {"hidden_size": width, "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": size}
    sizes |= {"intermediate_size": 2 * width, "num_hidden_layers": 3, "max_position_embeddings": LENGTH}
    settings: dict[str, Any] = {**sizes, "dropout": 0.0, "attention_dropout": 0.0, **RULES[rule]}
    model = zoo.build(name, "causal-lm", seed=seed, **settings).train()
    optimizer = torch.optim.AdamW(scaled_groups(model, [], RATES[width], 0.0), betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS[width])
    generator, losses = torch.Generator().manual_seed(seed), []
    for _ in range(STEPS[width]):
        starts = torch.randint(len(numbers) - LENGTH, (ROWS, 1), generator=generator)
        ids = numbers[starts + torch.arange(LENGTH)]
        loss = model(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        after_step(model)
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return fmean(losses[-LAST:])


def table(found: dict[str, float]) -> str:
    """Write the losses as Markdown: a row a kind of model, a column a width and rule."""
    columns = list(product(STEPS, RULES))
    lines = ["| |" + "".join(f" width {width}, {rule} |" for width, rule in columns), f"|---|{'---:|' * len(columns)}"]
    for called, name in VARIANTS.items():
        cells = ([found.get(key(name, *column, seed)) for seed in SEEDS[column[0]]] for column in columns)
        texts = ["not run" if None in cell else f"{fmean(filter(None, cell)):.3f}" for cell in cells]
        lines.append(f"| {called} (`{name}`) | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def key(name: str, width: int, rule: str, seed: int) -> str:
    """Key of a recorded run."""
    return f"{name} | {width} | {rule} | {seed}"


def main() -> None:
    """Run what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="write what is recorded, and run nothing")
    only_table = parser.parse_args().table
    found: dict[str, float] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    torch.set_num_threads(1)
    runs = ((*run, seed) for run in product(STEPS, VARIANTS.values(), RULES) for seed in SEEDS[run[0]])
    for width, name, rule, seed in () if only_table else runs:
        called = key(name, width, rule, seed)
        if called not in found:
            found[called] = round(final_loss(name, width, rule, seed), 4)
            write_file(RECORD, json.dumps(found, indent=1) + "\n")
    part = "python scripts/bench/initial_values.py"
    write_file(PAGE, replace_part(PAGE.read_text(encoding="utf-8"), part, table(found)))


if __name__ == "__main__":
    main()
