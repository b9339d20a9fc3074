"""Loss after a short training, with 0.02 at every width and with initial values by width.

`python scripts/bench/initial_values.py` trains on one thread with AdamW on characters of the English that ships with
the zoo. Recorded runs are not run again; `--table` writes the table of docs/training.md from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from short_training import final_loss, run_missing, sizes
from torch import Tensor

import zoo
from zoo.base.files import replace_part, write_file

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
ROWS, LENGTH = 8, 64
RULES = {"0.02": {"initializer_width": 1}, "by width": {}}


def text() -> tuple[Tensor, int]:
    """Read the text as numbers of characters; how many characters there are is the second."""
    read = "\n".join(line.split("\t")[0] for line in TEXT.read_text(encoding="utf-8").splitlines())
    known = {character: number for number, character in enumerate(sorted(set(read)))}
    return torch.tensor([known[character] for character in read]), len(known)


def batches(numbers: Tensor, seed: int) -> Iterator[Tensor]:
    """Parts of the text, without end. *Shape:* (ROWS, LENGTH)."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(numbers) - LENGTH, (ROWS, 1), generator=generator)
        yield numbers[starts + torch.arange(LENGTH)]


def run(name: str, width: int, rule: str, seed: int) -> float:
    numbers, vocabulary = text()
    settings: dict[str, Any] = {**sizes(width, max(2, width // 32)), "vocab_size": vocabulary, "num_hidden_layers": 3}
    settings |= {"max_position_embeddings": LENGTH, "dropout": 0.0, "attention_dropout": 0.0, **RULES[rule]}
    model = zoo.build(name, "causal-lm", seed=seed, **settings)
    return final_loss(model, batches(numbers, seed), STEPS[width], RATES[width], 0.99)


def table(found: Mapping[str, float]) -> str:
    """Write the losses as Markdown: a row a kind of model, a column a width and rule."""
    columns = list(product(STEPS, RULES))
    lines = ["| |" + "".join(f" width {width}, {rule} |" for width, rule in columns), f"|---|{'---:|' * len(columns)}"]
    for called, name in VARIANTS.items():
        cells = ([found.get(key(name, *column, seed)) for seed in SEEDS[column[0]]] for column in columns)
        texts = ["not run" if None in cell else f"{fmean(filter(None, cell)):.3f}" for cell in cells]
        lines.append(f"| {called} (`{name}`) | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def key(name: str, width: int, rule: str, seed: int) -> str:
    return f"{name} | {width} | {rule} | {seed}"


def main() -> None:
    runs = (
        (name, width, rule, seed)
        for width, name, rule in product(STEPS, VARIANTS.values(), RULES)
        for seed in SEEDS[width]
    )
    found = run_missing(RECORD, __doc__, ((key(*one), partial(run, *one)) for one in runs))
    part = "python scripts/bench/initial_values.py"
    write_file(PAGE, replace_part(PAGE.read_text(encoding="utf-8"), part, table(found)))


if __name__ == "__main__":
    main()
