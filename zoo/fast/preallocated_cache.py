"""Preallocated KV cache: writes new positions in place, where transformers copies the whole cache every decode step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutputWithPast

CACHE_NAME = "cache" if "cache" in {one.name for one in fields(BaseModelOutputWithPast)} else "past_key_values"
"""transformers' name of a cache in outputs and in generation: `cache` from 5.24 on."""

ROOM = 64  # Minimum of spare positions per allocation
SHARE = 8  # Spare positions as a fraction of the length; each position is copied about this many times in all


class SpareRoom:
    """Spare buffers for the keys and values of one layer, shared by all layers to reorder beams."""

    def __init__(self) -> None:
        self.rooms: tuple[Tensor, ...] = ()

    def swap(self, rooms: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Exchange a layer's buffers for spare ones of the same size."""
        fits = len(self.rooms) == len(rooms) and all(
            (free.shape, free.dtype, free.device) == (room.shape, room.dtype, room.device) and may_be_written(free)
            for free, room in zip(self.rooms, rooms, strict=True)
        )
        free = self.rooms if fits else tuple(map(torch.empty_like, rooms))
        self.rooms = rooms
        return free


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer with preallocated room.

    `keys` and `values` are views of the written positions. Assigning other tensors (crop, device move) is supported;
    the next update reallocates.
    """

    def __init__(self, spare: SpareRoom | None = None, longest: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spare = spare or SpareRoom()  # Buffers that the layers of a cache share to reorder beams
        self.longest = longest  # Maximal number of preallocated positions, unless more are written; 0 if unknown
        self.rooms: tuple[Tensor, ...] = ()
        self.shown: tuple[Tensor, ...] = ()

    def __copy__(self) -> GrowingLayer:
        """A branch that shares the written positions; the first of the two to write copies them."""
        self.shown = ()
        branch = type(self)()
        branch.__dict__.update(self.__dict__)
        return branch

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values, (batch_size, num_key_value_heads, seq_len, head_dim), and return all."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling():  # nothing may change in place
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        seen = self.get_seq_length()
        added = key_states.shape[2]
        self.reserve(seen + added)
        keys, values = self.rooms
        keys.narrow(2, seen, added).copy_(key_states)
        values.narrow(2, seen, added).copy_(value_states)
        return self.show(seen + added)

    def has_room(self, length: int) -> bool:
        """Whether this many positions fit into tensors that were not replaced and may be written."""
        if not self.shown or self.keys is not self.shown[0] or self.values is not self.shown[1]:
            return False
        return length <= self.rooms[0].shape[2] and all(map(may_be_written, self.rooms))

    def reserve(self, length: int) -> None:
        if self.has_room(length):
            return
        capacity = length + max(ROOM, length // SHARE)
        if length <= self.longest:
            capacity = min(capacity, self.longest)
        states = (self.keys, self.values)
        self.rooms = tuple(one.new_empty(*one.shape[:2], capacity, one.shape[-1]) for one in states)
        for room, one in zip(self.rooms, states, strict=True):
            room[:, :, : one.shape[2]] = one
        self.show(self.keys.shape[2])

    def show(self, length: int) -> tuple[Tensor, Tensor]:
        keys, values = self.rooms
        self.keys, self.values = self.shown = keys.narrow(2, 0, length), values.narrow(2, 0, length)
        return self.shown

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Reorder or repeat beams by the source row of every row, (batch_size,)."""
        if not self.has_room(0) or len(beam_idx) != len(self.keys):
            super().reorder_cache(beam_idx)
        elif is_far(beam_idx) or not torch.equal(beam_idx, torch.arange(len(beam_idx))):
            free_rooms = self.spare.swap(self.rooms)
            for shown, free in zip(self.shown, free_rooms, strict=True):
                torch.index_select(shown, 0, beam_idx.to(shown.device), out=free.narrow(2, 0, shown.shape[2]))
            self.rooms = free_rooms
            self.show(self.keys.shape[2])


class SourceLayer(DynamicLayer):
    """Keys and values of sources, stored once for `num_beams` consecutive rows with the same source.

    On an accelerator beams have to stay with their sources, as they do in beam search: a check would need a device
    sync. Attention with fewer keys than queries uses [`zoo.fast.attention.attention_by_source`][].
    """

    def __init__(self, num_beams: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_beams = num_beams

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Store the keys and values, (batch_size * num_beams, ...), of one beam per source."""
        once = slice(None, None, self.num_beams)
        return super().update(key_states[once], value_states[once], *args, **kwargs)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Reorder beams; no change as long as they stay with their sources."""
        if self.num_beams > 1:
            sources = beam_idx // self.num_beams
            if is_far(beam_idx) or torch.equal(sources, torch.arange(len(beam_idx)) // self.num_beams):
                return
        self.spread()
        super().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.num_beams *= repeats

    def batch_select_indices(self, indices: Tensor) -> None:
        self.spread()
        super().batch_select_indices(indices)

    def spread(self) -> None:
        """Store keys and values of every row from now on."""
        repeats, self.num_beams = self.num_beams, 1
        if repeats > 1:
            super().batch_repeat_interleave(repeats)


def is_far(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu"


def may_be_written(states: Tensor) -> bool:
    """Whether a tensor may be changed in place: outside of inference mode not if it was created in it."""
    return torch.is_inference_mode_enabled() or not states.is_inference()


def self_attention_cache(past_key_values: Cache) -> Cache:
    if isinstance(past_key_values, EncoderDecoderCache):
        return past_key_values.self_attention_cache
    return past_key_values


def let_grow(cache: Cache | None, num_beams: int, longest: int = 0) -> None:
    """Replace copying cache layers by preallocated ones."""
    growing = partial(GrowingLayer, SpareRoom(), longest)
    if isinstance(cache, EncoderDecoderCache):
        replace_layers(cache.self_attention_cache, growing)
        # Cross attention has no sliding window, but transformers makes its layers like those of self-attention.
        kinds = (DynamicLayer, DynamicSlidingWindowLayer)
        replace_layers(cache.cross_attention_cache, partial(SourceLayer, num_beams), kinds)
    else:
        replace_layers(cache, growing)


def hold_every_row(cache: Cache | None) -> None:
    """Convert a finished cache to transformers' layout, with one row of the source per beam."""
    if isinstance(cache, EncoderDecoderCache):
        for layer in cache.cross_attention_cache.layers:
            if isinstance(layer, SourceLayer):
                layer.spread()


def replace_layers(
    cache: Cache | None, layer: Callable[[], DynamicLayer], kinds: tuple[type[DynamicLayer], ...] = (DynamicLayer,)
) -> None:
    """Replace transformers' layers of a cache, and the class of layers that it adds later."""
    if isinstance(cache, DynamicCache) and type(cache) is DynamicCache and not cache.offloading:
        cache.layers = [layer() if type(one) in kinds else one for one in cache.layers]
        if cache.layer_class_to_replicate is DynamicLayer:
            cache.layer_class_to_replicate = layer
