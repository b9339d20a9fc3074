"""FlashAttention written out, for machines without it: what a model asks of it, computed plainly on any device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import transformers.modeling_flash_attention_utils as flash
from torch import nn

NAME = "flash_attention_2"


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    **kwargs: Any,
) -> torch.Tensor:
    """Do what `flash_attn_func` documents: queries are the last ones of the keys, and both ends of a window count.

    Args:
        query: *Shape:* (batch_size, query_len, num_heads, head_dim)
        key: *Shape:* (batch_size, key_len, num_key_value_heads, head_dim)
        value: *Shape:* as key.
        dropout_p: Has to be zero.
        softmax_scale: Multiplies the scores.
        causal: Whether a query sees only keys up to its own position.
        window_size: How many keys before and behind its own position a query sees, -1 for all.
        softcap: Bound on the scores, 0 for none.
        kwargs: `deterministic` and what else does not change results.

    Returns:
        *Shape:* as query.
    """
    assert dropout_p == 0
    groups = query.shape[2] // key.shape[2]
    key, value = key.repeat_interleave(groups, dim=2), value.repeat_interleave(groups, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * (softmax_scale or query.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows, columns = scores.shape[-2:]
    distance = torch.arange(columns, device=query.device) - torch.arange(rows, device=query.device)[:, None]
    distance = distance - (columns - rows)
    before, behind = window_size
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    if before >= 0:
        hidden |= distance < -before
    if causal or behind >= 0:
        hidden |= distance > (0 if causal else behind)
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num()
    return torch.einsum("bhqk,bkhd->bqhd", weights, value)


def attend_by_sequence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
) -> torch.Tensor:
    """Do what `flash_attn_varlen_func` documents: sequences of any length, end to end.

    Args:
        query: *Shape:* (num_tokens, num_heads, head_dim)
        key: *Shape:* (num_key_tokens, num_key_value_heads, head_dim)
        value: *Shape:* as key.
        cu_seqlens_q: Where sequences of queries begin, and the last one ends. *Shape:* (batch_size + 1,)
        cu_seqlens_k: The same of keys. *Shape:* (batch_size + 1,)
        max_seqlen_q: Not needed here.
        max_seqlen_k: Not needed here.
        dropout_p: As all that follows for [`attend`][].
        softmax_scale: Multiplies the scores.
        causal: Whether a query sees only keys up to its own position.
        window_size: How many keys before and behind its own position a query sees.
        softcap: Bound on the scores.
        deterministic: Changes no result.

    Returns:
        *Shape:* as query.
    """
    queries, keys = (ends.diff().tolist() for ends in (cu_seqlens_q, cu_seqlens_k))
    sequences = zip(query.split(queries), key.split(keys), value.split(keys), strict=True)
    mixed = [
        attend(q[None], k[None], v[None], dropout_p, softmax_scale, causal, window_size, softcap)[0]
        for q, k, v in sequences
    ]
    return torch.cat(mixed)


@contextmanager
def written_out_flash(*models: nn.Module) -> Iterator[None]:
    """Let models run on FlashAttention for a while, written out.

    Args:
        models: Models whose configurations FlashAttention is chosen in, without a look at what they support.

    Yields:
        Nothing.
    """

    def load(*args: Any, **kwargs: Any) -> Any:
        processed = flash._lazy_define_process_function(attend_by_sequence)
        return (attend, attend_by_sequence, None, flash._pad_input, flash._unpad_input), (processed, dict)

    modules: list[Any] = [module for model in models for module in model.modules() if hasattr(module, "config")]
    configs = {id(module.config): module.config for module in modules}
    before = {key: config._attn_implementation for key, config in configs.items()}
    with mock.patch.object(flash, "lazy_import_flash_attention", load):
        try:
            for config in configs.values():
                config._attn_implementation_internal = NAME
            yield
        finally:
            for key, config in configs.items():
                config._attn_implementation_internal = before[key]
