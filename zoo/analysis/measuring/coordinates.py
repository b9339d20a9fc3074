"""The coordinate check of a parametrization: whether what a model computes and learns grows with its width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from zoo.base.errors import ConfigError
from zoo.building.builder import build
from zoo.models.parametrization import learning_rate_factors

STEPS = 4  # Updates that are looked at
LENGTH, BATCH_SIZE = 32, 8  # Of the batch of random tokens that is learned


@dataclass(frozen=True)
class Coordinates:
    """Sizes of a model's activations and updates at one width."""

    width: int  # Its hidden size
    logits: tuple[float, ...]  # Mean size of its logits before every update, and after the last
    changes: tuple[float, ...]  # Mean change of its logits since the beginning, after every update


def check_coordinates(
    name: str,
    task: str | None = None,
    *,
    widths: Sequence[int] = (64, 128, 256),
    steps: int = STEPS,
    learning_rate: float = 1e-2,
    **settings: Any,
) -> list[Coordinates]:
    """Learn one batch at several widths, and see what grows (Yang et al. 2022, appendix D.1)."""
    head_dim = settings.pop("head_dim", 16)
    if len({*widths}) < 2 or any(width % head_dim or width < 1 for width in widths):
        raise ConfigError(f"widths={tuple(widths)} were given; give at least two different multiples of {head_dim=}")
    if steps < 1:
        raise ConfigError(f"{steps=} was given; give at least 1")
    ids = torch.randint(3, 64, (BATCH_SIZE, LENGTH), generator=torch.Generator().manual_seed(0))
    checked = []
    for width in widths:
        heads = width // head_dim
        sizes: dict[str, Any] = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": heads}
        sizes |= {"num_key_value_heads": heads, "num_hidden_layers": 2, "vocab_size": 64}
        sizes |= dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
        model = build(name, task, seed=0, **{**sizes, **settings}).train()
        factors = learning_rate_factors(model)
        groups = [{"params": [p], "lr": learning_rate * factors[n]} for n, p in model.named_parameters()]
        optimizer = torch.optim.Adam(groups)
        outputs = []
        for step in range(steps + 1):
            found = model(input_ids=ids, labels=ids)
            outputs.append(found.logits.detach().float())
            if step < steps:
                optimizer.zero_grad()
                found.loss.backward()
                optimizer.step()
        sizes_of_logits = tuple(logits.abs().mean().item() for logits in outputs)
        changes = tuple((logits - outputs[0]).abs().mean().item() for logits in outputs[1:])
        checked.append(Coordinates(width, sizes_of_logits, changes))
    return checked


def growth(found: Sequence[Coordinates]) -> float:
    """By which power of the width the first update's effect grows: about 0 in muP, 1/2 to 1 in the standard one."""
    widths, changes = zip(*((one.width, one.changes[0]) for one in found), strict=True)
    return float(np.polyfit(np.log(widths), np.log(changes), deg=1)[0])
