"""DeepNorm's constants, and how initial values depend on depth."""

import math
from typing import Any

import pytest
from models.formulas import config

import zoo
from zoo.models.residual import deepnorm_constants


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
