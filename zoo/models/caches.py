"""Caches of generation: which of transformers' layers hold the keys and values of which attention."""

from __future__ import annotations

import torch
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    StaticLayer,
)

from zoo.fast.growing_cache import self_attention_cache

from .configuration import ZooConfig


def new_cache(config: ZooConfig, *, has_source: bool) -> Cache:
    """Make an empty cache for a decoder.

    Args:
        config: The configuration of the decoder, which says how far each layer sees.
        has_source: Whether there is cross attention to an encoder's output.

    Returns:
        A cache whose windows bound self-attention alone.
    """
    cache = DynamicCache(config=config)
    return EncoderDecoderCache(cache, DynamicCache()) if has_source else cache


def prepare_cache(past_key_values: Cache, source_len: int = 0) -> None:
    """Make transformers' layers hold what attention sees, before a forward reads and extends them.

    Both halves of an encoder-decoder's cache are made by one configuration there, so that cross attention would forget
    the beginning of a source that is longer than the window of self-attention. A layer with a window of one position,
    of which the next query sees none, keeps all of them. And sources that were read in inference mode cannot take part
    in what records gradients.

    Args:
        past_key_values: Any cache, changed in place.
        source_len: Number of positions that cross attention reads.
    """
    own = self_attention_cache(past_key_values).layers
    for layer_idx, layer in enumerate(own):
        if isinstance(layer, DynamicSlidingWindowLayer) and layer.sliding_window == 1 and not layer.is_initialized:
            own[layer_idx] = DynamicLayer()
    if not isinstance(past_key_values, EncoderDecoderCache):
        return
    records = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    sources = past_key_values.cross_attention_cache.layers
    for layer_idx, layer in enumerate(sources):
        if past_key_values.is_updated.get(layer_idx):
            if records and layer.keys.is_inference():
                layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
        elif getattr(layer, "is_sliding", False):
            sources[layer_idx] = StaticLayer(source_len) if isinstance(layer, StaticLayer) else DynamicLayer()
