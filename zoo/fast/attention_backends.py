"""Attention functions in addition to those of transformers' attention interface."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .modules import dropout as drop


def eager_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Attention written out, the reference of every other backend and the only one that returns its weights.

    Shapes as for [`zoo.fast.attention.attention`][].

    Args:
        attention_mask: Added to the scores, or boolean with True for visible keys. *Shape:* (batch_size, 1 or
            num_attention_heads, query_len, key_len)
        softcap: Scores are squashed to (-softcap, softcap) (Gemma 2, section 2).
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = (query * scaling) @ key.transpose(-1, -2)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + added_mask(attention_mask, scores.dtype)
    weights = drop(scores.softmax(dim=-1).to(value.dtype), dropout, training=module.training)
    return (weights @ value).transpose(1, 2), weights


def added_mask(attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of queries and keys, of any shape, as a term of the scores."""
    if attention_mask.dtype != torch.bool:
        return attention_mask
    hidden = torch.finfo(dtype).min / 2  # far below every score, and a sum with it is finite
    return torch.zeros_like(attention_mask, dtype=dtype).masked_fill_(~attention_mask, hidden)


def torch_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    *,
    is_causal: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """PyTorch's scaled dot-product attention without transformers' preparation of its inputs; shapes as in `eager`."""
    sees_the_past = is_causal and attention_mask is None and query.shape[2] > 1
    options: dict[str, Any] = {"scale": scaling, "enable_gqa": query.shape[1] != key.shape[1]}
    mixed = F.scaled_dot_product_attention(query, key, value, attention_mask, dropout, sees_the_past, **options)
    return mixed.transpose(1, 2), None


def dropping_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The `sdpa` of transformers written out, as PyTorch's own on CPUs with dropout, but with faster dropout."""
    sees_the_past = module.is_causal if is_causal is None else is_causal
    if sees_the_past and attention_mask is None and query.shape[2] > 1:
        attention_mask = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
    return eager_attention(module, query, key, value, attention_mask, **kwargs)[0], None
