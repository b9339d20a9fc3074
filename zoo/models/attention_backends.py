"""What mixes values by scores, beside the backends of transformers' attention interface."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def eager_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention written out, the reference of every other backend and the only one that returns its weights.

    Args:
        module: The attention module, for its training mode.
        query: *Shape:* (batch_size, num_attention_heads, query_len, head_dim)
        key: *Shape:* (batch_size, num_key_value_heads, key_len, head_dim)
        value: *Shape:* as key.
        attention_mask: Added to the scores, or True for what may be seen, as other backends have it. *Shape:*
            (batch_size, 1 or num_attention_heads, query_len, key_len)
        scaling: Multiplies the scores.
        dropout: Probability of dropping an attention weight.
        softcap: Scores are squashed to (-softcap, softcap) (Gemma 2, section 2).
        position_bias: Added to the scores. *Shape:* (batch_size, num_attention_heads, query_len, key_len)
        kwargs: What other backends take.

    Returns:
        The mixed values, *Shape:* (batch_size, query_len, num_attention_heads, head_dim), and the weights,
        *Shape:* (batch_size, num_attention_heads, query_len, key_len).
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = query @ key.transpose(-1, -2) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = F.dropout(scores.softmax(dim=-1).to(value.dtype), p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2), weights


def single_query_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """PyTorch's scaled dot-product attention for a step of generation, where nothing else needs preparing.

    Arguments and result as for [`eager_attention`][], with a query_len of 1 and no position bias.
    """
    mixed = F.scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=scaling)
    return mixed.transpose(1, 2), None
