"""Dispatch of a model's attention: transformers' attention interface, or a faster implementation of the same."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

from zoo.base.errors import UnsupportedBackendError

from .attention_backends import added_mask, dropping_attention, eager_attention, torch_attention
from .modules import draws_bits
from .unpadding import UnpaddedMask, has_kernel, unpadded_attention, variable_length_attention

logger = logging.get_logger(__name__)

Config = TypeVar("Config", bound=PreTrainedConfig)

BACKENDS = ("sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3")
"""Attention backends of transformers that a model's own attention runs on, the default first. Only `eager` returns
attention weights."""

ADDS_BIASES = ("sdpa", "eager", "flex_attention")  # Backends that are known to add position biases to the scores


def config_with_weights(config: Config) -> Config:
    """Configuration of a call that wants attention weights: eager attention if the backend doesn't return them."""
    backend = config._attn_implementation
    if backend == "eager" or backend not in BACKENDS:
        return config
    if not torch.compiler.is_compiling():
        logger.warning_once(f"{backend} returns no attention weights: calls that ask for them run on eager attention")
    config = copy.copy(config)
    config._attn_implementation_internal = "eager"
    return config


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    *,
    attn_implementation: str,
    dropout: float,
    interface: Callable[..., Any] | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Mix values by the backend of a call, or by a faster implementation of it.

    Args:
        module: The attention module, for `is_causal`, `sliding_window` and its training mode.
        query: *Shape:* (batch_size, num_attention_heads, query_len, head_dim)
        key: With fewer rows than the query where beams share a source. *Shape:* (batch_size, num_key_value_heads,
            key_len, head_dim)
        value: *Shape:* as key.
        attention_mask: In the form that the backend wants, None for no mask beyond causality.
        interface: The backend's function, by default the one registered under its name.
        position_bias: Added to the scores. *Shape:* (batch_size, num_attention_heads, query_len, key_len)
        kwargs: `sliding_window` of this layer, by default the module's, and other arguments of the backend.

    Returns:
        The mixed values, *Shape:* (batch_size, query_len, num_attention_heads, head_dim), and the weights if the
        backend has them, *Shape:* (batch_size, num_attention_heads, query_len, key_len).
    """
    backend = interface or ALL_ATTENTION_FUNCTIONS.get_interface(attn_implementation, eager_attention)
    if query.shape[0] != key.shape[0]:
        kwargs |= {"attn_implementation": attn_implementation, "dropout": dropout, "position_bias": position_bias}
        return attention_by_source(module, query, key, value, attention_mask, interface=backend, **kwargs)
    if position_bias is not None or dropout or "flash" in attn_implementation:
        refuse_what_is_ignored(attn_implementation, dropout, position_bias, attention_mask)
    if (window := kwargs.get("sliding_window", module.sliding_window)) is not None:
        window = flash_window(module, window)
    kwargs |= {"dropout": dropout, "position_bias": position_bias, "sliding_window": window}
    if isinstance(attention_mask, UnpaddedMask):
        backend, attention_mask, kwargs = backend_without_padding(backend, query, value, attention_mask, kwargs)
    elif backend is sdpa_attention_forward:  # a user-registered sdpa backend is not replaced
        if dropout and draws_bits(query, dropout):
            backend = dropping_attention
        elif query.shape[1:3] == (key.shape[1], 1) and position_bias is None:
            backend = torch_attention
    elif attn_implementation == "flex_attention" and isinstance(attention_mask, Tensor):
        attention_mask, kwargs["position_bias"] = None, flex_bias(query, attention_mask, position_bias)
    mixed, weights = backend(module, query, key, value, attention_mask, **kwargs)
    # Backends of serving engines merge the heads.
    mixed = mixed if mixed.ndim == 4 else mixed.reshape(query.shape[0], query.shape[2], query.shape[1], -1)
    return mixed, weights


def refuse_what_is_ignored(
    attn_implementation: str, dropout: float, position_bias: Tensor | None, attention_mask: Any
) -> None:
    """Refuse a position bias, dropout or a mask of queries and keys that the backend would ignore."""
    if "flash" in attn_implementation and getattr(attention_mask, "ndim", 2) == 4:
        raise UnsupportedBackendError(
            f"attention backend {attn_implementation!r} takes padding masks only, (batch_size, key_len), and one of "
            f"queries and keys was given, {tuple(attention_mask.shape)}; valid: {', '.join(ADDS_BIASES)}"
        )
    if position_bias is not None and attn_implementation not in ADDS_BIASES:
        raise UnsupportedBackendError(
            f"attention backend {attn_implementation!r} adds no position biases, so results would be wrong without a "
            f"word; valid: {', '.join(ADDS_BIASES)}"
        )
    if dropout and attn_implementation == "flex_attention":
        raise UnsupportedBackendError(
            f"flex_attention cannot drop attention weights, and attention_dropout is {dropout}: build the model "
            "with attention_dropout=0, or train it on sdpa"
        )


def backend_without_padding(
    backend: Any, query: Tensor, value: Tensor, mask: UnpaddedMask, options: dict[str, Any]
) -> tuple[Any, UnpaddedMask | None, dict[str, Any]]:
    """The function for tokens without padding, its mask and its options."""
    if backend is flash_attention_forward:
        return backend, None, options | mask.flash_kwargs()
    plain = query.shape[-1] == value.shape[-1] and not options["dropout"] and options["position_bias"] is None
    return variable_length_attention if plain and has_kernel(query.device) else unpadded_attention, mask, options


def flex_bias(query: Tensor, attention_mask: Tensor, position_bias: Tensor | None) -> Tensor:
    """A mask of queries and keys as a bias of every row and head: transformers reads that of the first head only."""
    attention_mask = added_mask(attention_mask, query.dtype)
    bias = attention_mask if position_bias is None else attention_mask + position_bias
    return bias.expand(*query.shape[:2], -1, -1)


def attention_by_source(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Attention to sources shared by beams, which become query positions; other shapes as for [`attention`][]."""
    beams, length = query.shape[0] // key.shape[0], query.shape[2]
    has_rows = isinstance(attention_mask, Tensor) and attention_mask.ndim == 4
    if not (attention_mask is None or has_rows) or length > 1:
        key, value = key.repeat_interleave(beams, dim=0), value.repeat_interleave(beams, dim=0)
        return attention(module, query, key, value, attention_mask, **kwargs)
    # (batch_size * beams, heads, 1, head_dim) to (batch_size, heads, beams, head_dim), and back below.
    query = query.unflatten(0, (-1, beams)).squeeze(3).transpose(1, 2)
    mask = attention_mask[::beams] if has_rows and attention_mask.shape[0] > 1 else attention_mask
    mixed, weights = attention(module, query, key, value, mask, **kwargs)
    if weights is not None:
        weights = weights.transpose(1, 2).flatten(0, 1).unsqueeze(2)
    return mixed.flatten(0, 1).unsqueeze(1), weights


def flash_window(module: nn.Module, window: int | None) -> int | None:
    """A sliding window as FlashAttention counts it: with the query's own position, also in both directions."""
    return None if window is None else window + (not module.is_causal)
