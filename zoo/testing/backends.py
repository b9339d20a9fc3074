"""Checks of attention's backends: they give what attention written out gives, or are refused."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import transformers.modeling_flash_attention_utils as flash
from torch import Tensor, nn

from zoo.base.errors import UnsupportedBackendError
from zoo.building.builder import build

from .attending import padded
from .cases import assert_equal, check
from .subjects import BATCH_SIZE, TARGET_LENGTH, Subject

DOCUMENTS = ((4, 3), (TARGET_LENGTH,), (2, 4, 1))  # Lengths of what is packed into each row of a batch


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


FLASH = "flash_attention_2"


def attend(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """`flash_attn_func` as documented: sequences of one length, (batch_size, seq_len, num_heads, head_dim)."""
    bounds = [torch.arange(len(states) + 1, device=states.device) * states.shape[1] for states in (query, key)]
    rows = [states.flatten(0, 1) for states in (query, key, value)]
    mixed: Tensor = attend_by_sequence(rows[0], rows[1], rows[2], bounds[0], bounds[1], **options)
    return mixed.unflatten(0, query.shape[:2])


def out_of_sight(distance: Tensor, causal: bool, window_size: Sequence[int]) -> Tensor:
    """True for keys that a query does not see, by key minus query positions, (query_len, key_len)."""
    before, after = window_size
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    if before >= 0:
        hidden |= distance < -before
    if causal or after >= 0:
        hidden |= distance > (0 if causal else after)
    return hidden


def mix(
    query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, softmax_scale: float | None, softcap: float
) -> Tensor:
    """Mix values by scores. *Shape:* (batch_size, query_len, num_heads, head_dim), hidden (query_len, key_len)."""
    groups = query.shape[2] // key.shape[2]
    if groups > 1:
        key, value = (states[..., None, :].expand(-1, -1, -1, groups, -1).flatten(2, 3) for states in (key, value))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * (softmax_scale or query.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num()
    return torch.einsum("bhqk,bkhd->bqhd", weights, value)


def attend_by_sequence(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
) -> Tensor:
    """`flash_attn_varlen_func` as documented: sequences of any length, bounded by `cu_seqlens`, (batch_size + 1,).

    Queries are the last ones of the keys, and both ends of a window count. Scores are scaled by `softmax_scale`, and
    bounded by `softcap` unless it is 0; a `window_size` of -1 is no window.
    """
    assert dropout_p == 0
    # Nothing is asked of the device, as kernels ask nothing: every token finds its sequence by itself.
    queries, keys = (
        torch.searchsorted(ends, torch.arange(len(states), dtype=ends.dtype, device=ends.device), right=True)
        for ends, states in ((cu_seqlens_q, query), (cu_seqlens_k, key))
    )
    own = torch.arange(len(query), device=query.device) - cu_seqlens_q[queries]
    places = torch.arange(len(key), device=key.device) - cu_seqlens_k[keys]
    hidden = out_of_sight(places - own[:, None], causal, window_size) | (queries[:, None] != keys)
    return mix(query[None], key[None], value[None], hidden, softmax_scale, softcap)[0]


@contextmanager
def written_out_flash(*models: nn.Module) -> Iterator[None]:
    """Let models run on FlashAttention for a while, written out."""

    def load(*args: Any, **kwargs: Any) -> Any:
        processed = flash._lazy_define_process_function(attend_by_sequence)
        return (attend, attend_by_sequence, None, flash._pad_input, flash._unpad_input), (processed, dict)

    modules: list[Any] = [module for model in models for module in model.modules() if hasattr(module, "config")]
    configs = {id(module.config): module.config for module in modules}
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(flash, "lazy_import_flash_attention", load))
        for config in configs.values():
            patches.enter_context(mock.patch.object(config, "_attn_implementation_internal", FLASH))
        yield
