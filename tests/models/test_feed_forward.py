"""Feed-forward networks against formulas written out in plain loops, in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
from models.formulas import WIDTH, affine, close, config, random, randomized

from zoo.models import FeedForward, GatedFeedForward


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: float) -> float:
    return x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


ACTIVATIONS: list[tuple[str, Any]] = [
    ("relu", lambda x: max(x, 0.0)),
    ("gelu", gelu),
    ("gelu_pytorch_tanh", gelu_tanh),
    ("gelu_new", gelu_tanh),
    ("silu", lambda x: x / (1 + math.exp(-x))),
    ("relu2", lambda x: max(x, 0.0) ** 2),
]


@pytest.mark.parametrize(("act", "function"), ACTIVATIONS, ids=[name for name, _ in ACTIVATIONS])
def test_feed_forward_is_two_affine_maps_with_an_activation_between(act: str, function: Any) -> None:
    mlp, x = randomized(FeedForward(config(hidden_act=act))), random(3, WIDTH)
    close(mlp(x), [affine(mlp.down_proj, [function(v) for v in affine(mlp.up_proj, row)]) for row in x.tolist()], 1e-9)


@pytest.mark.parametrize(
    ("name", "function"),
    [("swiglu", ACTIVATIONS[4][1]), ("geglu", gelu), ("reglu", ACTIVATIONS[0][1])],
    ids=["swiglu", "geglu", "reglu"],
)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
def test_gated_feed_forward_multiplies_by_the_activated_gate(name: str, function: Any, bias: bool) -> None:
    mlp, x = randomized(GatedFeedForward(config(feed_forward=name, mlp_bias=bias))), random(3, WIDTH)
    expected = []
    for row in x.tolist():
        gate, up = affine(mlp.gate_proj, row), affine(mlp.up_proj, row)
        expected.append(affine(mlp.down_proj, [function(g) * u for g, u in zip(gate, up, strict=True)]))
    close(mlp(x), expected, 1e-9)
