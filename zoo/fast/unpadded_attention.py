"""Attention on tokens that stand end to end: a sequence at a time, or padded again where sequences are short."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from .attention_backends import dropping_attention, torch_attention
from .dropout import draws_bits
from .unpadding import UnpaddedMask

SHORT = 48
"""Mean number of tokens of a sequence below which one call of attention with padding is cheaper than many without."""


def unpadded_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: UnpaddedMask,
    scaling: float,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """PyTorch's scaled dot-product attention on unpadded sequences: each by itself, or short ones padded again.

    Args:
        module: The attention module, for `is_causal`.
        query: *Shape:* (1, num_attention_heads, num_tokens, head_dim)
        key: *Shape:* (1, num_key_value_heads, num_key_tokens, head_dim)
        value: *Shape:* as key.
        attention_mask: Tells the sequences apart.
        dropout: Probability of dropping an attention weight.
        position_bias: Added to the scores. *Shape:* (batch_size, num_attention_heads, query_len, key_len)

    Returns:
        The mixed values, *Shape:* (1, num_tokens, num_attention_heads, head_dim), and no weights.
    """
    is_causal = getattr(module, "is_causal", False)
    backend = dropping_attention if draws_bits(query, dropout) else torch_attention
    backend = partial(backend, module, scaling=scaling, dropout=dropout)
    is_short = len(attention_mask.keys.indices) < SHORT * attention_mask.keys.batch_size
    attend = attend_padded if is_short else attend_by_sequence
    return attend(query, key, value, attention_mask, is_causal, position_bias, backend), None


def attend_padded(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: UnpaddedMask,
    is_causal: bool,
    position_bias: torch.Tensor | None,
    backend: Callable[..., Any],
) -> torch.Tensor:
    """Put the padding back for attention alone. Shapes as for `unpadded_attention`."""
    query, key, value = (
        unpadding.pad(states.transpose(1, 2)).transpose(1, 2)
        for unpadding, states in ((mask.queries, query), (mask.keys, key), (mask.keys, value))
    )
    visible = mask.visible(is_causal)
    if position_bias is not None:
        visible = position_bias if visible is None else position_bias.masked_fill(~visible, -torch.inf)
    mixed, _ = backend(query, key, value, visible, is_causal=False)
    return mask.queries.unpad(mixed)


def attend_by_sequence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: UnpaddedMask,
    is_causal: bool,
    position_bias: torch.Tensor | None,
    backend: Callable[..., Any],
) -> torch.Tensor:
    """Call attention for each sequence, without any mask. Shapes as for `unpadded_attention`."""
    queries, keys = mask.queries, mask.keys
    sequences = zip(
        query.split(queries.lengths, dim=2),
        key.split(keys.lengths, dim=2),
        value.split(keys.lengths, dim=2),
        strict=True,
    )
    mixed = []
    for row, states in enumerate(sequences):
        bias = None
        if position_bias is not None:
            first_query, first_key = queries.starts[row], keys.starts[row]
            rows = slice(first_query, first_query + queries.lengths[row])
            columns = slice(first_key, first_key + keys.lengths[row])
            bias = position_bias[row, :, rows, columns][None]
            if is_causal:
                bias = bias + torch.full_like(bias[0, 0], -torch.inf).triu(1)
        mixed.append(backend(*states, bias, is_causal=is_causal and bias is None)[0])
    return torch.cat(mixed, dim=1)
