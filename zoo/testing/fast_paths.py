"""Checks of fast paths: they are taken, and change results by rounding only."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.fast.chunked_loss import IGNORED
from zoo.fast.switches import FastPaths, fast_paths
from zoo.models import ZooPreTrainedModel
from zoo.models.layers import TransformerLayer
from zoo.models.transformer import transformer_of
from zoo.training.after_steps import after_step

from .cases import TOLERANCE, assert_equal, check
from .subjects import Subject, copied, gradients_of, main_output

LOSS_TOLERANCE = 1e-6  # Losses are computed in float32
LENGTHS = (2, 4, 3)  # Real tokens of every sequence; short enough for the usual sliding windows not to bind

PATHS = frozenset(field.name for field in fields(FastPaths))
NOT_COMPARED = frozenset({"cache_room", "graph_capture", "prepacked_weights", "quick_dropout", "onednn_matmul"})
"""Fast paths of generation, one that draws other random numbers, and one that processors with AMX compute in bfloat16.
"""
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "classifier_dropout")
TRAINED = 1e-6
"""How far rounding may take weights of length one apart in a few steps; losses are computed in float32."""
STEPS = 3


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
    learnt, found = gradients_of(plain_model), gradients_of(unpadded_model)
    # Without norms, gradients are large, and so is what their rounding leaves in those that cancel out.
    largest = max(1.0, *(float(gradient.abs().max()) for gradient in learnt.values()))
    for name, gradient in learnt.items():
        assert name in found, f"unpadded, {name} gets no gradient"
        assert_equal(found[name], gradient, f"gradient of {name}, unpadded = padded", TOLERANCE * largest)


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
    learnt, found = gradients_of(plain_model), gradients_of(lean_model)
    for name in sorted(learnt.keys() | found.keys()):
        assert name in learnt and name in found, f"without logits, {name} gets another gradient"
        tolerance = LOSS_TOLERANCE * max(1.0, learnt[name].abs().max().item())
        assert_equal(found[name], learnt[name], f"gradient of {name} without logits", tolerance)


@check(once_per_stack=True)
def check_training_is_the_same_on_every_fast_path(subject: Subject) -> None:
    """Each fast path, alone, leaves weights and buffers after training on padded batches as they are without any.

    So does wider padding. Dropout is off.
    """
    model = subject.rebuilt(**dict.fromkeys(DROPOUTS, 0.0)).double().train()
    with fast_paths(**dict.fromkeys(PATHS, "never")):
        expected = trained(subject, model)
        states = {"wider padding": trained(subject, model, spare=2)}
        for name in PATHS - NOT_COMPARED:
            with fast_paths(**{name: "always"}):
                states[name] = trained(subject, model)
    for what, state in states.items():
        for name, tensor in state.items():
            tolerance = TRAINED * max(1.0, float(expected[name].abs().max()))
            assert_equal(tensor, expected[name], f"{name} after training, {what} = no fast path", tolerance)


def trained(subject: Subject, model: ZooPreTrainedModel, spare: int = 0) -> dict[str, Tensor]:
    """Train a copy of a model for a few steps on padded batches, with what follows every update."""
    model = copied(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        inputs, real = padded_inputs(subject, step, spare)
        padded_loss(subject, model, inputs, real, step).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        left = {f"{name}, before what follows an update": buffer.clone() for name, buffer in model.named_buffers()}
        after_step(model)
    return left | {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def padded_loss(subject: Subject, model: ZooPreTrainedModel, inputs: dict[str, Any], real: Tensor, seed: int) -> Tensor:
    """The loss of a padded batch, for language models without logits. Arguments as `padded_inputs` returns them."""
    labels = subject.labels(len(LENGTHS), seed)
    if labels is None:
        return main_output(model(**inputs))[real].sin().mean()
    if labels.ndim == 2:
        labels = F.pad(labels, (0, real.shape[1]))[:, : real.shape[1]].masked_fill(~real, IGNORED)
    skips = {} if "classification" in subject.task else {"skip_logits": True}
    loss: Tensor = model(**inputs, labels=labels, **skips).loss
    return loss


def padded_inputs(subject: Subject, seed: int = 0, spare: int = 0) -> tuple[dict[str, Any], Tensor]:
    """Arguments of a forward on sequences of different lengths, and a mask of real outputs."""
    longest = max(LENGTHS)
    real = torch.arange(longest + spare) < torch.tensor(LENGTHS)[:, None]
    ids = {name: F.pad(ids[:, :longest], (0, spare)) for name, ids in subject.inputs(len(LENGTHS), seed).items()}
    masks = {name.replace("input_ids", "attention_mask"): real.long() for name in ids}
    return {**ids, **masks, **({} if subject.stack == "encoder" else {"use_cache": False})}, real


def outputs_and_rows(model: ZooPreTrainedModel, inputs: dict[str, Any], real: Tensor) -> tuple[Tensor, set[int]]:
    """Run forward and backward; the output at real positions, and the batch sizes that the layers had."""
    with rows_of_layers() as rows:
        output = main_output(model(**inputs))
    output = output[real] if output.ndim == 3 else output
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(5), device="cpu")
    (output * weights.to(output)).sum().backward()
    return output.detach(), rows


@contextmanager
def rows_of_layers() -> Iterator[set[int]]:
    """Look at the batches that layers get, from outside: with hooks on them they would keep their padding."""
    rows: set[int] = set()
    call = TransformerLayer.__call__

    def look(layer: TransformerLayer, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        rows.add(hidden_states.shape[0])
        return call(layer, hidden_states, *args, **kwargs)

    with patch.object(TransformerLayer, "__call__", look):
        yield rows
