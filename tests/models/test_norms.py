"""Norms and residual connections against formulas written out in plain loops, in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from models.formulas import WIDTH, close, config, random, randomized
from torch import Tensor

import zoo
from zoo.models import DynamicTanh, LayerNorm, RMSNorm
from zoo.models.residual import build_residual, deepnorm_constants


def layer_norm(vector: list[float], weight: Tensor, bias: Tensor, eps: float) -> list[float]:
    mean = sum(vector) / len(vector)
    variance = sum((x - mean) ** 2 for x in vector) / len(vector)
    return [
        float(w) * (x - mean) / math.sqrt(variance + eps) + float(b)
        for x, w, b in zip(vector, weight, bias, strict=True)
    ]


def test_layer_norm_subtracts_the_mean_and_divides_by_the_deviation() -> None:
    norm, x = randomized(LayerNorm(WIDTH, config(layer_norm_eps=0.1))), random(4, WIDTH)
    close(norm(x), [layer_norm(row.tolist(), norm.weight, norm.bias, 0.1) for row in x])


def test_rms_norm_divides_by_the_root_mean_square() -> None:
    norm, x = randomized(RMSNorm(WIDTH, config(layer_norm_eps=0.1))), random(4, WIDTH)
    roots = [math.sqrt(sum(v * v for v in row.tolist()) / WIDTH + 0.1) for row in x]
    expected = [
        [float(w) * v / root for v, w in zip(row.tolist(), norm.weight, strict=True)]
        for row, root in zip(x, roots, strict=True)
    ]
    close(norm(x), expected)


def test_dynamic_tanh_squashes_every_element() -> None:
    norm, x = randomized(DynamicTanh(WIDTH, config())), random(4, WIDTH)
    alpha = float(norm.alpha)
    rows = [zip(row.tolist(), norm.weight.tolist(), norm.bias.tolist(), strict=True) for row in x]
    close(norm(x), [[w * math.tanh(alpha * v) + b for v, w, b in row] for row in rows])


DEPTH = 6
ALPHA = (2 * DEPTH) ** 0.25


@pytest.mark.parametrize(
    ("placement", "scaling", "formula"),
    [
        ("post", None, lambda x, f, r: r.norm_out(x + f(x))),
        ("pre", None, lambda x, f, r: x + f(r.norm_in(x))),
        ("sandwich", None, lambda x, f, r: x + r.norm_branch(f(r.norm_in(x)))),
        ("res-post", None, lambda x, f, r: x + r.norm_branch(f(x))),
        ("deepnorm", None, lambda x, f, r: r.norm_out(ALPHA * x + f(x))),
        ("none", None, lambda x, f, r: x + f(x)),
        ("none", "rezero", lambda x, f, r: x + float(r.scale.weight) * f(x)),
        ("pre", "layer-scale", lambda x, f, r: x + r.scale.weight * f(r.norm_in(x))),
        ("sandwich", "layer-scale", lambda x, f, r: x + r.scale.weight * r.norm_branch(f(r.norm_in(x)))),
    ],
)
def test_every_norm_placement_is_its_formula(placement: str, scaling: str | None, formula: Any) -> None:
    settings = {"norm_placement": placement, "residual_scaling": scaling, "num_hidden_layers": DEPTH}
    residual, x = randomized(build_residual(config(**settings))), random(2, 5, WIDTH)
    matrix = random(WIDTH, WIDTH, seed=2)

    def sublayer(states: Tensor) -> Tensor:
        return torch.tanh(states @ matrix)

    norms = {name for name in ("norm_in", "norm_branch", "norm_out") if list(getattr(residual, name).parameters())}
    used = {
        "post": {"norm_out"},
        "pre": {"norm_in"},
        "sandwich": {"norm_in", "norm_branch"},
        "res-post": {"norm_branch"},
    }
    assert norms == {**used, "deepnorm": {"norm_out"}, "none": set()}[placement]
    for name in norms:
        norm = getattr(residual, name)
        by_hand = [layer_norm(row.tolist(), norm.weight, norm.bias, 1e-5) for row in x.reshape(-1, WIDTH)]
        close(norm(x).reshape(-1, WIDTH), by_hand)
    close(residual(x, sublayer), formula(x, sublayer, residual).detach())


def test_deepnorm_constants_are_those_of_the_papers_table() -> None:
    """Wang et al. 2022, table 1: architectures by rows, N encoder and M decoder layers."""
    n, m = 5, 9
    encoder_only = deepnorm_constants(config(num_hidden_layers=n))
    assert encoder_only == pytest.approx(((2 * n) ** (1 / 4), (8 * n) ** (-1 / 4)))
    decoder_only = deepnorm_constants(config(num_hidden_layers=m, is_decoder=True))
    assert decoder_only == pytest.approx(((2 * m) ** (1 / 4), (8 * m) ** (-1 / 4)))
    both = config(num_hidden_layers=n, decoder_layers=m, is_encoder_decoder=True)
    encoder = deepnorm_constants(both)
    assert encoder == pytest.approx((0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16)))
    assert deepnorm_constants(both.decoder_config()) == pytest.approx(((3 * m) ** (1 / 4), (12 * m) ** (-1 / 4)))


def test_deepnorm_initialises_values_outputs_and_feed_forward_with_gain_beta() -> None:
    depth, width = 6, 96
    sizes: dict[str, Any] = {"hidden_size": width, "num_hidden_layers": depth, "intermediate_size": width}
    model = zoo.build("deepnorm", "causal-lm", seed=0, vocab_size=9, num_attention_heads=4, **sizes)
    beta = (8 * depth) ** -0.25
    xavier = math.sqrt(2 / (width + width))
    layer = model.model.layers[3]
    for linear, gain in (
        (layer.self_attn.q_proj, 1.0),
        (layer.self_attn.k_proj, 1.0),
        (layer.self_attn.v_proj, beta),
        (layer.self_attn.o_proj, beta),
        (layer.mlp.up_proj, beta),
        (layer.mlp.down_proj, beta),
    ):
        assert linear.weight.std().item() == pytest.approx(gain * xavier, rel=0.05)


def test_depth_scaled_initialisation_shrinks_what_writes_to_the_residual_stream() -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 96,
        "num_hidden_layers": 8,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "initializer_range": 0.02,
    }
    layer = zoo.build("gpt2-style", seed=0, vocab_size=9, **sizes).model.layers[2]
    for linear, std in (
        (layer.self_attn.q_proj, 0.02),
        (layer.mlp.up_proj, 0.02),
        (layer.self_attn.o_proj, 0.02 / 4),
        (layer.mlp.down_proj, 0.02 / 4),
    ):
        assert linear.weight.std().item() == pytest.approx(std, rel=0.05)
