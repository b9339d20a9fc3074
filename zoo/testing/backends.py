"""Checks of attention's backends: they give what attention written out gives, or are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from zoo.base.errors import UnsupportedBackendError
from zoo.building.builder import build

from .attending import padded
from .cases import check
from .comparing import assert_equal
from .flash import NAME as FLASH
from .flash import written_out_flash
from .subjects import BATCH_SIZE, TARGET_LENGTH, Subject

DOCUMENTS = ((4, 3), (TARGET_LENGTH,), (2, 4, 1))
"""Lengths of what is packed into each row of a batch."""


@check(once_per_stack=True)
def check_attention_backends_agree(subject: Subject) -> None:
    """eager, sdpa and flex_attention give the same, on padded input; what is not supported is refused at build."""
    inputs = subject.inputs()
    ids, mask = padded(inputs["input_ids"], subject.config.vocab_size, "right")
    inputs = {**inputs, "input_ids": ids, "attention_mask": mask}
    real = (slice(None),) if subject.stack == "encoder-decoder" else (slice(None), slice(TARGET_LENGTH))
    reference = None
    supported = subject.model.supported_backends()
    for backend in ("eager", "sdpa", "flex_attention"):
        if backend not in supported:
            _assert_refused(subject, backend)
            continue
        model = subject.rebuilt(attn_implementation=backend)
        configs: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
        used = {config._attn_implementation for config in configs}
        assert used == {backend}, f"attn_implementation={backend!r} was asked for, modules use {sorted(used)}"
        # Compiling flex attention takes a minute on a CPU and changes nothing that is checked here.
        with torch.compiler.set_stance("force_eager" if backend == "flex_attention" else "default"):
            output = subject.run(model, **inputs)
        output = output[real] if output.ndim == 3 else output
        reference = output if reference is None else reference
        assert_equal(output, reference, f"{backend} = eager", 1e-6)


def _assert_refused(subject: Subject, backend: str) -> None:
    try:
        build(subject.name, subject.task, attn_implementation=backend)
    except UnsupportedBackendError as error:
        assert backend in str(error), f"the refusal of {backend} does not name it: {error}"
        return
    raise AssertionError(f"{backend} is not among the supported backends, but a model was built with it")


@check()
def check_flash_attention_agrees(subject: Subject) -> None:
    """FlashAttention, written out, gives what eager attention gives: of whole, padded and packed rows, and windows.

    Unsupported inputs are refused.
    """
    if FLASH not in subject.model.supported_backends():
        _assert_refused(subject, FLASH)
        return
    model = subject.rebuilt(attn_implementation="eager")
    for rows, inputs, real in _flash_inputs(subject):
        eager = subject.run(model, **inputs)
        with written_out_flash(model):
            flash = subject.run(model, **inputs)
        at = real if eager.ndim == 3 else slice(None)
        assert_equal(flash[at], eager[at], f"flash = eager, {rows} rows")


def _flash_inputs(subject: Subject) -> Iterator[tuple[str, dict[str, Any], Tensor]]:
    """Kinds of rows, the arguments of a forward, and which positions count, *Shape:* (batch_size, seq_len)."""
    uncached: dict[str, Any] = {} if subject.stack == "encoder" else {"use_cache": False}
    inputs = {**subject.inputs(), **uncached}
    everywhere = torch.ones_like(inputs["input_ids"])
    yield "whole", inputs, everywhere.bool()
    ids, mask = padded(inputs["input_ids"], subject.config.vocab_size, "right")
    mask[0, 3:] = 0
    yield "padded", {**uncached, "input_ids": ids, "attention_mask": mask}, mask.bool()
    # Documents in a row are separated where tokens see only earlier ones, and no state crosses into the next document.
    if subject.stack == "decoder" and subject.config.mixer_layer_type is None:
        positions = torch.stack([torch.cat([torch.arange(length) for length in row]) for row in DOCUMENTS])
        yield "packed", {**inputs, "position_ids": positions[:BATCH_SIZE]}, everywhere.bool()
        yield "single packed", {**subject.inputs(1), **uncached, "position_ids": positions[:1]}, everywhere[:1].bool()
