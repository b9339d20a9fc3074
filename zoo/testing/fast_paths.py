"""Checks of fast paths: they are taken, and change nothing but rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from zoo.fast.switches import fast_paths
from zoo.models import ZooPreTrainedModel
from zoo.models.layers import TransformerLayer
from zoo.models.transformer import transformer_of

from .cases import check
from .comparing import TOLERANCE, assert_equal
from .subjects import Subject, main_output

LOSS_TOLERANCE = 1e-6
"""Losses are computed in float32."""

LENGTHS = (2, 4, 3)
"""Real tokens of every sequence; short enough for the usual sliding windows not to bind."""


@check()
def check_unpadding_changes_nothing(subject: Subject) -> None:
    """Taking padding out before the layers gives the outputs and gradients of leaving it in."""
    inputs, real = padded_inputs(subject)
    plain_model, unpadded_model = subject.copy(), subject.copy()
    with fast_paths(unpadding="never"):
        plain, _ = outputs_and_rows(plain_model, inputs, real)
    with fast_paths(unpadding="always"):
        unpadded, rows = outputs_and_rows(unpadded_model, inputs, real)
    can_unpad = transformer_of(subject.config).can_unpad(subject.config)
    binds = (subject.config.sliding_window or max(LENGTHS)) < max(LENGTHS)
    on_cpu = subject.model.device.type == "cpu"
    expected = on_cpu and can_unpad and subject.model.supported_backends()[0] == "sdpa" and not binds
    assert rows == {1} if expected else 1 not in rows, f"layers ran on batches of {sorted(rows)}"
    assert_equal(unpadded, plain, "unpadded = padded")
    learnt = {name: parameter.grad for name, parameter in plain_model.named_parameters() if parameter.grad is not None}
    # Without norms, gradients are large, and so is what their rounding leaves in those that cancel out.
    largest = max(1.0, *(float(gradient.abs().max()) for gradient in learnt.values()))
    gradients = dict(unpadded_model.named_parameters())
    for name, expected_gradient in learnt.items():
        gradient = gradients[name].grad
        assert gradient is not None, f"unpadded, {name} gets no gradient"
        what = f"gradient of {name}, unpadded = padded"
        assert_equal(gradient, expected_gradient, what, TOLERANCE * largest)


@check(tasks=("causal-lm", "masked-lm", "seq2seq-lm"))
def check_skipping_logits_changes_no_gradient(subject: Subject) -> None:
    """The loss that is computed without logits, and its gradients, are those of the plain one."""
    plain_model, lean_model = subject.copy().train(), subject.copy().train()
    inputs = {**subject.inputs(), "labels": subject.labels()}
    torch.manual_seed(3)
    plain = plain_model(**inputs)
    torch.manual_seed(3)
    with fast_paths(chunked_loss="always"):
        lean = lean_model(**inputs, skip_logits=True)
    assert lean.logits is None, "logits were computed all the same"
    assert_equal(lean.loss, plain.loss, "loss without logits = loss", LOSS_TOLERANCE)
    plain.loss.backward()
    lean.loss.backward()
    gradients = dict(lean_model.named_parameters())
    for name, parameter in plain_model.named_parameters():
        gradient = gradients[name].grad
        assert (gradient is None) == (parameter.grad is None), f"without logits, {name} gets another gradient"
        if gradient is not None and parameter.grad is not None:
            tolerance = LOSS_TOLERANCE * max(1.0, parameter.grad.abs().max().item())
            assert_equal(gradient, parameter.grad, f"gradient of {name} without logits", tolerance)


def padded_inputs(subject: Subject) -> tuple[dict[str, Any], Tensor]:
    """Inputs of different lengths, and which positions of the output are real.

    Returns:
        Arguments of a forward, and a mask. *Shape:* (batch_size, output_len)
    """
    inputs: dict[str, Any] = subject.inputs()
    lengths = torch.tensor(LENGTHS)[:, None]
    masks = {name.replace("input_ids", "attention_mask"): (torch.arange(4) < lengths).long() for name in inputs}
    inputs = {name: ids[:, :4] for name, ids in inputs.items()}
    real = list(masks.values())[-1].bool()
    return {**inputs, **masks, **({} if subject.stack == "encoder" else {"use_cache": False})}, real


def outputs_and_rows(model: ZooPreTrainedModel, inputs: dict[str, Any], real: Tensor) -> tuple[Tensor, set[int]]:
    """Run a model forward and backward.

    Args:
        model: Gets gradients.
        inputs: Arguments of its forward.
        real: Which positions of the output count. *Shape:* (batch_size, output_len)

    Returns:
        What it gives at those, and the batch sizes that its layers saw.
    """
    with rows_of_layers() as rows:
        output = main_output(model(**inputs))
    output = output[real] if output.ndim == 3 else output
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(5), device="cpu")
    (output * weights.to(output)).sum().backward()
    return output.detach(), rows


@contextmanager
def rows_of_layers() -> Iterator[set[int]]:
    """Look at the batches that layers get, from outside: with hooks on them they would keep their padding.

    Yields:
        The batch sizes that have been seen.
    """
    rows: set[int] = set()
    call = TransformerLayer.__call__

    def look(layer: TransformerLayer, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        rows.add(hidden_states.shape[0])
        return call(layer, hidden_states, *args, **kwargs)

    with patch.object(TransformerLayer, "__call__", look):
        yield rows
