"""Positions of a decoder after the last label of a row: without them, the loss and its gradients are the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import zoo
from zoo.fast import fast_paths
from zoo.fast.chunked_loss import IGNORED
from zoo.fast.unpad_layers import mask_to_last_label
from zoo.registry import VARIANTS
from zoo.testing import randomize, token_ids

NAMES = [
    one
    for name in zoo.list_variants(task="seq2seq-lm")
    for one in (name, *([f"{name}+faithful"] if VARIANTS.get(name).quirks else []))
    if one != "odom-style+faithful"  # which takes no token ids
]
VOCABULARY, SOURCE, TARGET = 30, 9, 9


def batch() -> dict[str, Any]:
    """What `DataCollatorForSeq2Seq` gives: no mask of the target. Labels have a gap, and one row has a single label."""
    mask = torch.ones(4, SOURCE, dtype=torch.long)
    mask[0, 4:] = mask[2, 5:] = 0
    labels = token_ids(4, TARGET, VOCABULARY, 1)
    labels[0, 5:] = labels[1, 2:] = labels[2, 1:] = labels[3, 3] = IGNORED
    return {"input_ids": token_ids(4, SOURCE, VOCABULARY, 0) * mask, "attention_mask": mask, "labels": labels}


def loss_and_gradients(model: Any, **options: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = model(**batch(), **options).loss
    loss.backward()
    return loss.detach(), {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_and_its_gradients_are_the_same_without_them(name: str) -> None:
    sizes = {"vocab_size": VOCABULARY, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model = randomize(zoo.build(name, "seq2seq-lm", **{**TINY, **sizes}, dtype=torch.float64)).train()
    with fast_paths(unpadding="never"):
        loss, gradients = loss_and_gradients(model)
    with fast_paths(unpadding="always"):
        found, others = loss_and_gradients(model, skip_logits=True)
    torch.testing.assert_close(found, loss, rtol=1e-10, atol=1e-10)
    assert gradients.keys() == others.keys()
    for parameter, gradient in gradients.items():
        torch.testing.assert_close(others[parameter], gradient, rtol=1e-7, atol=1e-9, msg=parameter)


TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def lengths_of(model: Any, **options: Any) -> list[int]:
    """How many positions the decoder's layers see in a row."""
    seen: list[int] = []
    layer = type(model.model.decoder.layers[0])

    def forward(self: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append(hidden_states.shape[1])
        return plain(self, hidden_states, *args, **kwargs)

    plain, layer.forward = layer.forward, forward
    try:
        with fast_paths(unpadding="always"):
            model(**batch(), **options)
    finally:
        layer.forward = plain
    return seen


def test_they_are_taken_out_where_logits_are_not_returned() -> None:
    model = zoo.build("pre-norm", "seq2seq-lm", vocab_size=VOCABULARY, **TINY)
    assert set(lengths_of(model, skip_logits=True)) == {5 + 2 + 1 + TARGET}
    assert set(lengths_of(model)) == {4 * TARGET}
    for recorded in ("output_hidden_states", "output_attentions"):
        assert set(lengths_of(model, skip_logits=True, **{recorded: True})) & {TARGET, 4 * TARGET}


def test_the_mask_reaches_to_the_last_label_and_is_worth_it() -> None:
    decoder = zoo.build("pre-norm", "seq2seq-lm", vocab_size=VOCABULARY, **TINY).model.decoder
    labels = torch.tensor([[3, IGNORED, 4, IGNORED], [IGNORED] * 4])
    assert mask_to_last_label(decoder, labels).tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert mask_to_last_label(decoder, torch.ones(2, 4, dtype=torch.long)) is None
