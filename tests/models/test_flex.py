"""FlexAttention trains what adds biases to scores, bounds them or looks through windows; it drops no weights."""

from typing import Any

import pytest
import torch
import transformers.integrations.flex_attention as flex
import transformers.masking_utils as masks
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

import zoo
from zoo.base.errors import UnsupportedBackendError
from zoo.testing.subjects import randomize

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 60}


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets PyTorch differentiate it here, written out, where it refuses to for want of a kernel; compiles no masks."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *tensors: None)
    monkeypatch.setattr(flex, "compile_friendly_flex_attention", written_out)
    make = masks.create_block_mask
    monkeypatch.setattr(masks, "create_block_mask", lambda *a, **options: make(*a, **{**options, "_compile": False}))


def written_out(*states: Tensor, training: bool, **options: Any) -> Any:
    return flex_attention(*states, **options)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("alibi-decoder", "causal-lm"),
        ("pre-norm:position=t5", "masked-lm"),
        ("gemma2-style", "causal-lm"),
        ("pre-norm:sliding_window=3", "masked-lm"),
        pytest.param("t5-style", "seq2seq-lm", marks=pytest.mark.nightly),
    ],
)
def test_gradients_are_those_of_eager_attention(name, task):
    """Of learned biases, too; on a padded batch."""
    model = zoo.build(name, task, seed=0, **SIZES)
    randomize(model)
    ids = torch.randint(5, 60, (2, 9))
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0
    found = []
    for backend in ("eager", "flex_attention"):
        model.set_attn_implementation(backend)
        loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("name", ["llama-style", "alibi-decoder"])
@pytest.mark.parametrize("shape", [(1, 1, 9, 9), (2, 2, 9, 9)])
def test_a_mask_of_queries_and_keys_is_that_of_eager_attention(name, shape):
    """One for all rows, and one of every head, which transformers reads as that of the first row or head."""
    model = zoo.build(name, "causal-lm", seed=0, **{**SIZES, "num_key_value_heads": 1})
    mask = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) > 0.5) | torch.eye(9, dtype=torch.bool)
    found = []
    for backend in ("eager", "flex_attention"):
        model.set_attn_implementation(backend)
        found.append(model(input_ids=torch.arange(18).view(2, 9), attention_mask=mask.tril()).logits)
    torch.testing.assert_close(found[1], found[0])


def test_dropout_of_weights_is_refused_by_name():
    model = zoo.build("gpt2-style", attn_implementation="flex_attention", attention_dropout=0.1, **SIZES).train()
    with pytest.raises(UnsupportedBackendError, match="attention_dropout=0"):
        model(input_ids=torch.ones(1, 3, dtype=torch.long))


@pytest.mark.parametrize(("name", "task"), [("llama-style", "causal-lm"), ("t5-style", "seq2seq-lm")])
def test_generation_with_a_static_cache_is_refused_by_name(name, task):
    model = zoo.build(name, task, attn_implementation="flex_attention", **SIZES)
    ids = torch.randint(5, 60, (2, 4))
    with pytest.raises(UnsupportedBackendError, match="cannot generate with a static cache.*'sdpa'"):
        model.generate(input_ids=ids, max_new_tokens=2, cache_implementation="static")
    model.set_attn_implementation("eager")
    assert model.generate(input_ids=ids, max_new_tokens=2, cache_implementation="static").shape[0] == 2
