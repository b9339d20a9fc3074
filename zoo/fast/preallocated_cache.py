"""KV cache that grows in place: it writes what is new, where transformers' own copies all of it every decode step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
)

ROOM = 64
"""For how many further positions there is room at least, when room is made."""

SHARE = 8
"""There is room for this part of the positions that are there; each is copied about as many times in all."""


class SpareRoom:
    """Memory for the keys and values of one layer, by which all layers of a cache put their beams in order."""

    def __init__(self) -> None:
        self.rooms: tuple[Tensor, ...] = ()

    def swap(self, rooms: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Take a layer's rooms.

        Args:
            rooms: Its keys and values, which it still reads and does not write to again.

        Returns:
            Others of the same sizes, to write to.
        """
        fits = len(self.rooms) == len(rooms) and all(
            (free.shape, free.dtype, free.device) == (room.shape, room.dtype, room.device) and may_be_written(free)
            for free, room in zip(self.rooms, rooms, strict=True)
        )
        free = self.rooms if fits else tuple(map(torch.empty_like, rooms))
        self.rooms = rooms
        return free


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer, with room for those to come.

    `keys` and `values` show what has been written. Whoever puts other tensors there, as a crop or another device does,
    is understood: the next update makes room anew.

    Args:
        spare: What the layers of a cache share to put beams in order, its own if not given.
        longest: For how many positions there will be room at most, unless more are written; 0 if nobody knows.
        kwargs: As for `DynamicLayer`.
    """

    def __init__(self, spare: SpareRoom | None = None, longest: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spare = spare or SpareRoom()
        self.longest = longest
        self.rooms: tuple[Tensor, ...] = ()
        self.shown: tuple[Tensor, ...] = ()

    def __copy__(self) -> GrowingLayer:
        """A branch: what has been written is shared, and whoever writes next, this layer or its copy, moves first."""
        self.shown = ()
        branch = type(self)()
        branch.__dict__.update(self.__dict__)
        return branch

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write keys and values behind those that are there.

        Args:
            key_states: *Shape:* (batch_size, num_key_value_heads, seq_len, head_dim)
            value_states: *Shape:* as key_states.

        Returns:
            All keys and all values. *Shape:* (batch_size, num_key_value_heads, key_len, head_dim)
        """
        if torch.is_grad_enabled() or torch.compiler.is_compiling():  # where nothing may change in place
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
        """Whether so many positions fit where `keys` and `values` are.

        Returns:
            False also where `keys` or `values` have been replaced, and of what inference mode has made, outside of it.
        """
        if not self.shown or self.keys is not self.shown[0] or self.values is not self.shown[1]:
            return False
        return length <= self.rooms[0].shape[2] and all(map(may_be_written, self.rooms))

    def reserve(self, length: int) -> None:
        """Move to where there is more room than needed, unless there is enough.

        Args:
            length: Number of positions that will be.
        """
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
        """Let `keys` and `values` be what has been written."""
        keys, values = self.rooms
        self.keys, self.values = self.shown = keys.narrow(2, 0, length), values.narrow(2, 0, length)
        return self.shown

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Put beams in another order, or continue one of them several times.

        Args:
            beam_idx: For every row the row that it becomes. *Shape:* (batch_size,)
        """
        if not self.has_room(0) or len(beam_idx) != len(self.keys):
            super().reorder_cache(beam_idx)
        elif is_far(beam_idx) or not torch.equal(beam_idx, torch.arange(len(beam_idx))):
            free_rooms = self.spare.swap(self.rooms)
            for shown, free in zip(self.shown, free_rooms, strict=True):
                torch.index_select(shown, 0, beam_idx.to(shown.device), out=free.narrow(2, 0, shown.shape[2]))
            self.rooms = free_rooms
            self.show(self.keys.shape[2])


class SourceLayer(DynamicLayer):
    """Keys and values of sources, held once for all beams that read the same one.

    On an accelerator beams have to stay with their sources, as they do in beam search: to look would mean to wait.
    Attention to fewer keys than it has queries goes by [`zoo.fast.attention.attention_by_source`][].

    Args:
        num_beams: How many rows in succession have the same source.
    """

    def __init__(self, num_beams: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_beams = num_beams

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Hold the keys and values of one row of each source.

        Args:
            key_states: *Shape:* (batch_size * num_beams, num_key_value_heads, source_len, head_dim)
            value_states: *Shape:* as key_states.

        Returns:
            Both. *Shape:* (batch_size, num_key_value_heads, source_len, head_dim)
        """
        once = slice(None, None, self.num_beams)
        return super().update(key_states[once], value_states[once], *args, **kwargs)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Put beams in another order, which changes nothing while they stay with their sources.

        Args:
            beam_idx: For every row the row that it becomes. *Shape:* (batch_size * num_beams,)
        """
        if self.num_beams > 1:
            sources = beam_idx // self.num_beams
            if is_far(beam_idx) or torch.equal(sources, torch.arange(len(beam_idx)) // self.num_beams):
                return
        self.spread()
        super().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Let every row stand for several."""
        self.num_beams *= repeats

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows."""
        self.spread()
        super().batch_select_indices(indices)

    def spread(self) -> None:
        """Hold keys and values of every row from now on."""
        repeats, self.num_beams = self.num_beams, 1
        if repeats > 1:
            super().batch_repeat_interleave(repeats)


def is_far(tensor: Tensor) -> bool:
    """Whether asking for a tensor's values means to wait for an accelerator.

    Returns:
        False for one of the processor's own.
    """
    return tensor.device.type != "cpu"


def may_be_written(states: Tensor) -> bool:
    """Whether a tensor may be changed in place: outside of inference mode not one that was made in it.

    Returns:
        False if PyTorch would refuse.
    """
    return torch.is_inference_mode_enabled() or not states.is_inference()


def self_attention_cache(past_key_values: Cache) -> Cache:
    """The self-attention part of any cache.

    Args:
        past_key_values: A cache of one sequence or of an encoder-decoder.
    """
    if isinstance(past_key_values, EncoderDecoderCache):
        return past_key_values.self_attention_cache
    return past_key_values


def let_grow(cache: Cache | None, num_beams: int, longest: int = 0) -> None:
    """Change the layers of a new cache that would copy into such that do not.

    Args:
        cache: A cache that holds nothing yet; other kinds than `DynamicCache` stay as they are.
        num_beams: How many rows in succession have the same source.
        longest: How many positions will be written, 0 if nobody knows.
    """
    growing = partial(GrowingLayer, SpareRoom(), longest)
    if isinstance(cache, EncoderDecoderCache):
        replace_layers(cache.self_attention_cache, growing)
        # No window bounds what cross attention sees; transformers makes its layers as those of self-attention.
        kinds = (DynamicLayer, DynamicSlidingWindowLayer)
        replace_layers(cache.cross_attention_cache, partial(SourceLayer, num_beams), kinds)
    else:
        replace_layers(cache, growing)


def hold_every_row(cache: Cache | None) -> None:
    """Let a cache that generation is done with be as transformers' own: sources, too, in a row for each beam.

    Args:
        cache: Any cache, changed in place.
    """
    if isinstance(cache, EncoderDecoderCache):
        for layer in cache.cross_attention_cache.layers:
            if isinstance(layer, SourceLayer):
                layer.spread()


def replace_layers(
    cache: Cache | None, layer: Callable[[], DynamicLayer], kinds: tuple[type[DynamicLayer], ...] = (DynamicLayer,)
) -> None:
    """Put layers of another kind where a cache has, or would make, transformers' own.

    Args:
        cache: A cache that holds nothing yet.
        layer: Makes a layer.
        kinds: Which of transformers' layers it takes the place of.
    """
    if isinstance(cache, DynamicCache) and type(cache) is DynamicCache and not cache.offloading:
        cache.layers = [layer() if type(one) in kinds else one for one in cache.layers]
        if cache.layer_class_to_replicate is DynamicLayer:
            cache.layer_class_to_replicate = layer
