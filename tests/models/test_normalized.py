"""The normalised Transformer: initial factors, and weights of length one in new models and in training."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments

import zoo
from zoo.models.unit import UnitEmbedding, UnitHead
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


@pytest.mark.parametrize("size", [WORDS + 2, WORDS - 2])
def test_new_tokens_have_vectors_of_length_one(size: int) -> None:
    model = zoo.build("ngpt", "causal-lm", **SIZES)
    unit = (UnitEmbedding, UnitHead)
    tables = {name: one.weight.detach().clone() for name, one in model.named_modules() if isinstance(one, unit)}
    model.resize_token_embeddings(size)
    assert len(tables) == 2
    for name, before in tables.items():
        after = model.get_submodule(name).get_parameter("weight")
        assert torch.equal(after[:WORDS], before[:size])
        torch.testing.assert_close(after.norm(dim=-1), torch.ones(size))
