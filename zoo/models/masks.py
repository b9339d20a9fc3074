"""Masks and position biases, made once a forward for all layers of a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
    create_causal_mask,
    create_sliding_window_causal_mask,
    find_packed_sequence_indices,
)

from zoo.errors import InputError
from zoo.fast.unpadding import UnpaddedMask, Unpadding

if TYPE_CHECKING:
    from .configuration import ZooConfig
    from .positions import Position

MASKS = {
    (False, "full_attention"): create_bidirectional_mask,
    (False, "sliding_attention"): create_bidirectional_sliding_window_mask,
    (True, "full_attention"): create_causal_mask,
    (True, "sliding_attention"): create_sliding_window_causal_mask,
}
"""transformers' mask of every pair of causality and layer type."""


def layer_types(config: ZooConfig) -> dict[str, int]:
    """The kinds of self-attention that a stack has.

    Args:
        config: The configuration of the stack.

    Returns:
        For every layer type the first layer of it.
    """
    first: dict[str, int] = {}
    for layer_idx, layer_type in enumerate(config.types_of_layers()):
        first.setdefault(layer_type, layer_idx)
    return first


def check_mask_length(attention_mask: Any, length: int, *, is_given: bool = True) -> None:
    """Refuse a padding mask that leaves out cached positions, which nobody would know to be padding or not.

    Args:
        attention_mask: *Shape:* (batch_size, key_len); other kinds of masks are not checked.
        length: Number of positions, cached ones included.
        is_given: Whether it is the caller's own, or the variant made it of the token ids.

    Raises:
        InputError: When the mask is shorter.
    """
    is_padding_mask = isinstance(attention_mask, torch.Tensor) and attention_mask.ndim == 2
    if is_padding_mask and attention_mask.shape[1] < length:
        whose = "attention_mask" if is_given else "attention_mask that the variant makes of the token ids"
        raise InputError(
            f"the (decoder's) {whose} covers {attention_mask.shape[1]} positions, but with the cache there are "
            f"{length}: give a mask for all of them, or use_cache=False"
        )


def are_packed(attention_mask: Any, position_ids: torch.Tensor | None) -> bool:
    """Whether positions tell several documents in a row apart, which then do not see each other.

    Args:
        attention_mask: The given mask; with one, positions say nothing of the kind.
        position_ids: The given positions, which begin anew with every document. *Shape:* (batch_size, seq_len)

    Returns:
        What transformers makes of them.
    """
    return (
        attention_mask is None and position_ids is not None and find_packed_sequence_indices(position_ids) is not None
    )


def self_attention_masks(
    config: ZooConfig,
    inputs_embeds: torch.Tensor,
    attention_mask: Any,
    cache: Cache | None = None,
    position_ids: torch.Tensor | None = None,
    unpadding: Unpadding | None = None,
) -> dict[str, Any]:
    """Make the mask of every layer type, in the form that the attention backend wants.

    Args:
        config: The configuration of the stack.
        inputs_embeds: Gives sizes, dtype and device. *Shape:* (batch_size, seq_len, hidden_size)
        attention_mask: 1 for real tokens, cached ones included, *Shape:* (batch_size, key_len); or None; or masks that
            are ready, one or a dict by layer type.
        cache: Keys and values of earlier positions.
        position_ids: Tell packed sequences apart. *Shape:* (batch_size, seq_len)
        unpadding: Where the tokens are, if the layers run without padding.

    Returns:
        A mask (None where nothing needs masking beyond causality) for every layer type.
    """
    if unpadding is not None:
        return dict.fromkeys(layer_types(config), UnpaddedMask(unpadding, unpadding))
    if isinstance(attention_mask, dict):
        return attention_mask
    causal = {"position_ids": position_ids} if config.is_decoder else {}
    return {
        layer_type: MASKS[config.is_decoder, layer_type](
            config=config, inputs_embeds=inputs_embeds, attention_mask=attention_mask, past_key_values=cache, **causal
        )
        for layer_type in layer_types(config)
    }


def cross_attention_mask(
    config: ZooConfig,
    inputs_embeds: torch.Tensor,
    attention_mask: Any,
    encoder_hidden_states: torch.Tensor,
    unpadding: Unpadding | None = None,
    encoder_unpadding: Unpadding | None = None,
) -> Any:
    """Make the mask of cross attention, in the form that the attention backend wants.

    Args:
        config: The configuration of the decoder.
        inputs_embeds: The decoder's input. *Shape:* (batch_size, target_len, hidden_size)
        attention_mask: 1 for real source tokens. *Shape:* (batch_size, source_len)
        encoder_hidden_states: *Shape:* (batch_size, source_len, hidden_size)
        unpadding: Where the target's tokens are, if the layers run without padding.
        encoder_unpadding: Where the source's tokens are, likewise.

    Returns:
        A mask, None where nothing needs masking.
    """
    if unpadding is not None and encoder_unpadding is not None:
        return UnpaddedMask(unpadding, encoder_unpadding)
    return create_bidirectional_mask(
        config=config,
        inputs_embeds=inputs_embeds,
        attention_mask=attention_mask,
        encoder_hidden_states=encoder_hidden_states,
    )


def position_biases(
    config: ZooConfig, position: Position, inputs_embeds: torch.Tensor, cache: Cache | None = None
) -> dict[str, torch.Tensor | None]:
    """Make the position bias of every layer type, over the keys that its cache holds.

    Args:
        config: The configuration of the stack.
        position: The position part.
        inputs_embeds: Gives sizes, dtype and device. *Shape:* (batch_size, seq_len, hidden_size)
        cache: Keys and values of earlier positions.

    Returns:
        None or a tensor for every layer type. *Shape:* (batch_size, num_attention_heads, seq_len, key_len)
    """
    types = layer_types(config)
    if not position.has_bias:
        return dict.fromkeys(types)
    batch_size, seq_len = inputs_embeds.shape[:2]
    positions = torch.arange(seq_len, device=inputs_embeds.device)
    biases: dict[str, torch.Tensor | None] = {}
    for layer_type, layer_idx in types.items():
        seen, key_len, key_offset = 0, seq_len, 0
        if cache is not None:
            seen = cache.get_seq_length(layer_idx)
            key_len, key_offset = cache.get_mask_sizes(seq_len, layer_idx)
        keys = torch.arange(key_len, device=inputs_embeds.device) + key_offset
        bias = position.bias(positions + seen, keys)
        biases[layer_type] = None if bias is None else bias.to(inputs_embeds.dtype).expand(batch_size, -1, -1, -1)
    return biases
