"""The normalised Transformer against the formulas of its paper, in float64 and without the zoo's parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models.formulas import close
from torch import Tensor
from torch.nn.functional import silu
from transformers import Trainer, TrainingArguments

import zoo
from zoo.models import normalize_weights
from zoo.testing import randomize, token_ids
from zoo.training import AfterSteps

WIDTH, HEADS, HEAD, INNER, WORDS, LENGTH = 16, 4, 4, 20, 23, 7
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "vocab_size": WORDS,
    "num_hidden_layers": 2,
}


def norm(x: Tensor, dim: int = -1) -> Tensor:
    return x / x.square().sum(dim, keepdim=True).sqrt()


def rope(x: Tensor) -> Tensor:
    """Rotate pairs of channels i and i + half of (positions, heads, HEAD) by position."""
    half = HEAD // 2
    angles = torch.arange(len(x), dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def logits_of(p: dict[str, Tensor], ids: Tensor) -> Tensor:
    """Section 2.6 of the paper, for one text."""
    base = WIDTH**-0.5
    h = norm(p["model.embed_tokens.weight"])[ids]
    for n in range(SIZES["num_hidden_layers"]):
        layer = {name.removeprefix(f"model.layers.{n}."): value for name, value in p.items()}
        q, k, v = ((h @ norm(layer[f"self_attn.{name}_proj.weight"]).T).view(LENGTH, HEADS, HEAD) for name in "qkv")
        s_qk = (layer["self_attn.qk_scales.weight"] / base).view(HEADS, HEAD)
        q, k = norm(rope(q)) * s_qk, norm(rope(k)) * s_qk
        scores = torch.einsum("ihd,jhd->hij", q, k) * HEAD**0.5
        weights = scores.masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -torch.inf).softmax(-1)
        mixed = torch.einsum("hij,jhd->ihd", weights, v).reshape(LENGTH, WIDTH)
        h_a = norm(mixed @ norm(layer["self_attn.o_proj.weight"], 0).T)
        alpha = (layer["self_attn_residual.rates.weight"] * 0.05 / base).abs()
        h = norm(h + alpha * (h_a - h))
        u = h @ norm(layer["mlp.up_proj.weight"]).T * layer["mlp.up_scales.weight"]
        v = h @ norm(layer["mlp.gate_proj.weight"]).T * layer["mlp.gate_scales.weight"] * WIDTH**0.5
        h_m = norm((u * silu(v)) @ norm(layer["mlp.down_proj.weight"], 0).T)
        alpha = (layer["mlp_residual.rates.weight"] * 0.05 / base).abs()
        h = norm(h + alpha * (h_m - h))
    return (h @ norm(p["lm_head.weight"]).T) * p["lm_head.scales"] / base


def test_ngpt_equals_the_papers_formulas() -> None:
    model = randomize(zoo.build("ngpt", "causal-lm", dtype=torch.float64, **SIZES), std=0.7)
    normalize_weights(model)
    ids = token_ids(2, LENGTH, WORDS, 0)
    found = model(ids).logits
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    for row in range(2):
        close(found[row], logits_of(parameters, ids[row]), 1e-6)  # tables of rotations are computed in float32


def test_a_new_model_has_the_papers_factors() -> None:
    model = zoo.build("ngpt", "causal-lm", seed=0, **SIZES)
    layer = model.model.layers[0]
    for scales, value in (
        (layer.self_attn.qk_scales, 1.0),
        (layer.self_attn_residual.rates, 0.05),
        (layer.mlp_residual.rates, 0.05),
        (layer.mlp.gate_scales, 1.0),
        (layer.mlp.up_scales, 1.0),
    ):
        torch.testing.assert_close(scales(), torch.full_like(scales.weight, value))
    torch.testing.assert_close(model.lm_head.scales, torch.full((WORDS,), WIDTH**-0.5))


def lengths_of(model: Any) -> list[Tensor]:
    layers = [model.lm_head.weight.norm(dim=-1), model.get_input_embeddings().weight.norm(dim=-1)]
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        rows = (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj)
        layers += [linear.weight.norm(dim=-1) for linear in rows]
        layers += [linear.weight.norm(dim=0) for linear in (attention.o_proj, mlp.down_proj)]
    return [length.detach() for length in layers]


def assert_on_the_hypersphere(model: Any) -> None:
    for length in lengths_of(model):
        torch.testing.assert_close(length, torch.ones_like(length))
    with torch.no_grad():
        for states in model(token_ids(2, LENGTH, WORDS, 0), output_hidden_states=True).hidden_states:
            torch.testing.assert_close(states.norm(dim=-1), torch.ones(2, LENGTH))


def test_weights_and_states_have_length_one_in_new_models_and_after_steps_of_transformers_trainer(
    tmp_path: Path,
) -> None:
    model = zoo.build("ngpt", "causal-lm", seed=0, **SIZES)
    assert_on_the_hypersphere(model)
    rows = [{"input_ids": row, "labels": row} for row in token_ids(8, LENGTH, WORDS, 0)]
    args = TrainingArguments(
        str(tmp_path), max_steps=3, learning_rate=0.1, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True
    )
    before = [parameter.detach().clone() for parameter in model.parameters()]
    Trainer(model, args, train_dataset=rows, callbacks=[AfterSteps()]).train()
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert_on_the_hypersphere(model)


@pytest.mark.parametrize("size", [WORDS + 2, WORDS - 2])
def test_factors_of_tokens_are_kept_when_the_vocabulary_changes(size: int) -> None:
    model = randomize(zoo.build("ngpt", "causal-lm", **SIZES))
    before = model.lm_head.scales.detach().clone()[: min(size, WORDS)]
    model.resize_token_embeddings(size)
    after = model.lm_head.scales.detach()
    torch.testing.assert_close(after[: len(before)], before)
    torch.testing.assert_close(after[len(before) :], torch.full((max(0, size - WORDS),), WIDTH**-0.5))
