"""Attention on unpadded sequences: one sequence at a time, or padded again if sequences are short."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .attention_backends import dropping_attention, torch_attention
from .modules import draws_bits
from .unpadding import UnpaddedMask

SHORT = 48
"""Mean sequence length below which one padded call of attention is cheaper than one call per sequence."""


def unpadded_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: UnpaddedMask,
    scaling: float,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """PyTorch's scaled dot-product attention on unpadded sequences: one at a time, or short ones padded again.

    Args:
        query: *Shape:* (1, num_attention_heads, num_tokens, head_dim)
        key, value: *Shape:* (1, num_key_value_heads, num_key_tokens, head_dim)
        position_bias: Added to the scores. *Shape:* (batch_size, num_attention_heads, query_len, key_len)

    Returns:
        The mixed values, *Shape:* (1, num_tokens, num_attention_heads, head_dim), and no weights.
    """
    backend = dropping_attention if draws_bits(query, dropout) else torch_attention
    attend = partial(backend, module, scaling=scaling, dropout=dropout)
    is_causal, queries, keys = getattr(module, "is_causal", False), attention_mask.queries, attention_mask.keys
    if len(keys.indices) < SHORT * keys.batch_size:
        visible = padded_mask(attention_mask, is_causal, position_bias)
        states = ((queries, query), (keys, key), (keys, value))
        padded = [unpadding.pad(one.transpose(1, 2)).transpose(1, 2) for unpadding, one in states]
        return queries.unpad(attend(*padded, visible, is_causal=False)[0]), None
    mixed = [
        attend(*states, bias, is_causal=is_causal and bias is None)[0]
        for *states, bias in zip(
            query.split(queries.lengths, dim=2),
            key.split(keys.lengths, dim=2),
            value.split(keys.lengths, dim=2),
            sequence_biases(attention_mask, is_causal, position_bias),
            strict=True,
        )
    ]
    return torch.cat(mixed, dim=1), None


def padded_mask(mask: UnpaddedMask, is_causal: bool, position_bias: Tensor | None) -> Tensor | None:
    """Attention mask after padding again: the visible keys, or the bias with -inf at hidden keys."""
    visible = mask.visible(is_causal)
    if position_bias is None:
        return visible
    return position_bias if visible is None else position_bias.masked_fill(~visible, -torch.inf)


def sequence_biases(mask: UnpaddedMask, is_causal: bool, position_bias: Tensor | None) -> list[Tensor | None]:
    """Split a bias into sequences of their own lengths, with -inf for keys hidden from a causal query; None without."""
    queries, keys = mask.queries, mask.keys
    if position_bias is None:
        return [None] * queries.batch_size
    biases: list[Tensor | None] = []
    for row in range(queries.batch_size):
        first_query, first_key = queries.starts[row], keys.starts[row]
        rows = slice(first_query, first_query + queries.lengths[row])
        columns = slice(first_key, first_key + keys.lengths[row])
        bias = position_bias[row, :, rows, columns][None]
        biases.append(bias + torch.full_like(bias[0, 0], -torch.inf).triu(1) if is_causal else bias)
    return biases
