"""PyTorch's variable-length attention: FlashAttention on unpadded sequences of a GPU, without another package."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from .unpadding import UnpaddedMask

HALF = (torch.bfloat16, torch.float16)
"""Dtypes of its kernel."""

WIDEST = 256
"""The largest head_dim of its kernel, which has to be a multiple of 8."""


def kernel() -> Callable[..., Any]:
    """PyTorch's function, imported late: it takes more than a second, and is for GPUs only."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn


@cache
def has_kernel(device: torch.device) -> bool:
    """Whether a device has the kernel: NVIDIA's, since Ampere."""
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and torch.backends.cuda.is_flash_attention_available()
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and "enable_gqa" in inspect.signature(kernel()).parameters
    )


def computes(config: Any, hidden_states: Tensor, *, drops: bool, has_bias: bool) -> bool:
    """Whether the kernel supports the attention of a stack."""
    if drops or has_bias or not has_kernel(hidden_states.device) or not torch.backends.cuda.flash_sdp_enabled():
        return False
    return dtype_of_products(hidden_states) in HALF and config.head_dim % 8 == 0 and config.head_dim <= WIDEST


def dtype_of_products(states: Tensor) -> torch.dtype:
    """Dtype of matrix products of these tensors: autocast's if it is on, otherwise their own."""
    kind = states.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype


def variable_length_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: UnpaddedMask,
    scaling: float,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention on all sequences of a batch in one call, without dropout and bias.

    Args:
        query: *Shape:* (1, num_attention_heads, num_tokens, head_dim)
        key, value: *Shape:* (1, num_key_value_heads, num_key_tokens, head_dim)
        sliding_window: Number of positions that a query sees on each side, including its own; None for all.

    Returns:
        The mixed values, *Shape:* (1, num_tokens, num_attention_heads, head_dim), and no weights.
    """
    dtype = dtype_of_products(value)
    states = [one[0].transpose(0, 1).to(dtype) for one in (query, key, value)]
    queries, keys = attention_mask.queries, attention_mask.keys
    before = -1 if sliding_window is None else sliding_window - 1
    mixed = kernel()(
        *states,
        queries.cu_seqlens,
        keys.cu_seqlens,
        max(queries.lengths),
        max(keys.lengths),
        scale=scaling,
        window_size=(before, 0 if getattr(module, "is_causal", False) else before),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return mixed[None], None
