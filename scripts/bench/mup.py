"""The best learning rate by width, in the standard parametrization and in muP: python scripts/bench/mup.py.

Every run trains a decoder for a few steps on text of a Markov chain, where a symbol depends on the two before it,
and is written into mup.json as soon as it is over, so that an interrupted command goes on where it was.
`--table` prints what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from short_training import final_loss, run_missing, sizes
from torch import Tensor

import zoo

RECORD = Path(__file__).with_suffix(".json")
WIDTHS = (32, 64, 128)
RATES = (2**-11, 2**-9, 2**-7, 2**-5, 2**-3)
PARAMETRIZATIONS = ("standard", "mup")
SYMBOLS, LENGTH, ROWS, STEPS = 32, 64, 8, 150
SETTINGS: dict[str, Any] = {"vocab_size": SYMBOLS, "num_hidden_layers": 2, "head_dim": 16, "mup_base_width": WIDTHS[0]}
SETTINGS["initializer_width"] = 1  # as recorded: 0.02 at every width


def batches(seed: int) -> Iterator[Tensor]:
    """Write text of the chain, always the same one: batches without end. *Shape:* (ROWS, LENGTH)."""
    chain = torch.randn(SYMBOLS, SYMBOLS, SYMBOLS, generator=torch.Generator().manual_seed(0)).mul(3).softmax(-1)
    generator = torch.Generator().manual_seed(seed)
    while True:
        text = [torch.randint(SYMBOLS, (ROWS,), generator=generator) for _ in range(2)]
        for _ in range(LENGTH - 2):
            text.append(torch.multinomial(chain[text[-2], text[-1]], 1, generator=generator).squeeze(1))
        yield torch.stack(text, dim=1)


def run(parametrization: str, width: int, rate: float) -> float:
    settings = {**SETTINGS, **sizes(width, width // SETTINGS["head_dim"]), "parametrization": parametrization}
    return final_loss(zoo.build("llama-style", "causal-lm", seed=0, **settings), batches(1), STEPS, rate, 0.95)


def table(found: Mapping[str, float]) -> str:
    """Write losses, a width's best rate in bold, and what it costs to take the narrowest model's for the widest."""
    lines = ["| parametrization | width |" + "".join(f" {rate:g} |" for rate in RATES), "|---" * (2 + len(RATES)) + "|"]
    for parametrization, width in product(PARAMETRIZATIONS, WIDTHS):
        losses = [found.get(f"{parametrization} {width} {rate:g}", float("nan")) for rate in RATES]
        cells = (f"**{loss:.3f}**" if loss == min(losses) else f"{loss:.3f}" for loss in losses)
        lines.append(f"| {parametrization} | {width} | {' | '.join(cells)} |")
    widest = {one: {rate: found[f"{one} {WIDTHS[-1]} {rate:g}"] for rate in RATES} for one in PARAMETRIZATIONS}
    taken = {one: min(RATES, key=lambda rate: found[f"{one} {WIDTHS[0]} {rate:g}"]) for one in PARAMETRIZATIONS}
    costs = (f"{widest[one][taken[one]] - min(widest[one].values()):.3f} ({one})" for one in PARAMETRIZATIONS)
    lines += ["", f"Width {WIDTHS[-1]} at the rate that is best at width {WIDTHS[0]} loses {' and '.join(costs)}."]
    return "\n".join(lines)


if __name__ == "__main__":
    every = product(PARAMETRIZATIONS, WIDTHS, RATES)
    print(table(run_missing(RECORD, __doc__, (("{} {} {:g}".format(*one), partial(run, *one)) for one in every))))
