"""A cache for generation that writes what is new, where transformers' own copies everything at every step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.generation import GenerationMixin

from .fast_paths import current

ROOM = 64
"""For how many further positions there is room at least, when room is made."""


class GrowingLayer(DynamicLayer):
    """Keys and values of one layer, with room for those to come.

    `keys` and `values` show what has been written. Whoever puts other tensors there, as a crop or another device does,
    is understood: the next update makes room anew.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rooms: tuple[torch.Tensor, ...] = ()
        self.spare: tuple[torch.Tensor, ...] = ()
        self.shown: tuple[torch.Tensor | None, ...] = (None, None)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values behind those that are there.

        Args:
            key_states: *Shape:* (batch_size, num_key_value_heads, seq_len, head_dim)
            value_states: *Shape:* as key_states.
            args: As for `DynamicLayer.update`.
            kwargs: Likewise.

        Returns:
            All keys and all values. *Shape:* (batch_size, num_key_value_heads, key_len, head_dim)
        """
        if torch.is_grad_enabled() or torch.compiler.is_compiling():  # where nothing may change in place
            return super().update(key_states, value_states, *args, **kwargs)
        seen = self.get_seq_length()
        length = seen + key_states.shape[-2]
        if not self.has_room(length):
            self.make_room(key_states, value_states, seen, length)
        for room, states in zip(self.rooms, (key_states, value_states), strict=True):
            room[:, :, seen:length] = states
        self.show(length)
        return self.keys, self.values

    def has_room(self, length: int) -> bool:
        """Whether so many positions fit where `keys` and `values` are.

        Args:
            length: Number of positions.

        Returns:
            False also where `keys` or `values` have been replaced.
        """
        ours = self.keys is not None and self.keys is self.shown[0] and self.values is self.shown[1]
        return ours and length <= self.rooms[0].shape[2]

    def make_room(self, key_states: torch.Tensor, value_states: torch.Tensor, seen: int, length: int) -> None:
        """Move to where there is more room than needed.

        Args:
            key_states: Gives sizes, dtype and device. *Shape:* (batch_size, num_key_value_heads, seq_len, head_dim)
            value_states: Likewise.
            seen: Number of positions that are there.
            length: Number of positions that will be.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        capacity = length + max(ROOM, length // 2)
        rooms = [
            states.new_empty(*states.shape[:2], capacity, states.shape[-1]) for states in (key_states, value_states)
        ]
        if seen:
            for room, states in zip(rooms, (self.keys, self.values), strict=True):
                room[:, :, :seen] = states
        self.rooms, self.spare = tuple(rooms), ()

    def show(self, length: int) -> None:
        """Let `keys` and `values` be what has been written.

        Args:
            length: Number of positions.
        """
        self.keys, self.values = self.shown = tuple(room[:, :, :length] for room in self.rooms)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Put beams in another order, or continue one of them several times.

        Args:
            beam_idx: For every row the row that it becomes. *Shape:* (batch_size,)
        """
        if not self.has_room(0) or len(beam_idx) != len(self.keys):
            super().reorder_cache(beam_idx)
        elif not torch.equal(beam_idx, torch.arange(len(beam_idx), device=beam_idx.device)):
            spare = self.spare or tuple(torch.empty_like(room) for room in self.rooms)
            for room, reordered in zip(self.rooms, spare, strict=True):
                torch.index_select(room, 0, beam_idx.to(room.device), out=reordered)
            self.rooms, self.spare = spare, self.rooms
            self.show(self.keys.shape[2])


class SourceLayer(DynamicLayer):
    """Keys and values of a source, which all beams of a sequence share: their order makes no difference.

    Args:
        num_beams: Number of beams of a sequence.
    """

    def __init__(self, num_beams: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_beams = num_beams

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Put beams in another order, unless they stay with their sequences.

        Args:
            beam_idx: For every row the row that it becomes. *Shape:* (batch_size,)
        """
        rows = torch.arange(len(beam_idx), device=beam_idx.device)
        if not torch.equal(beam_idx // self.num_beams, rows // self.num_beams):
            super().reorder_cache(beam_idx)


class CachedGenerationMixin(GenerationMixin):
    """transformers' generation, with a cache that grows in place where it would make one that does not."""

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        given = model_kwargs.get("past_key_values")
        result = super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        if given is None and current().cache_room != "never":
            let_grow(model_kwargs.get("past_key_values"), generation_config.num_beams or 1)
        return result


def let_grow(cache: Cache | None, num_beams: int) -> None:
    """Change the layers of a new cache that would copy into such that grow.

    Args:
        cache: A cache that holds nothing yet; other kinds than `DynamicCache` stay as they are.
        num_beams: Number of beams of a sequence.
    """
    if isinstance(cache, EncoderDecoderCache):
        replace_layers(cache.self_attention_cache, GrowingLayer)
        replace_layers(cache.cross_attention_cache, partial(SourceLayer, num_beams))
    else:
        replace_layers(cache, GrowingLayer)


def replace_layers(cache: Cache | None, layer: Callable[[], DynamicLayer]) -> None:
    """Put layers of another kind where a cache has, or would make, transformers' plain ones.

    Args:
        cache: A cache that holds nothing yet.
        layer: Makes a layer.
    """
    if type(cache) is DynamicCache and not cache.offloading:
        cache.layers = [layer() if type(one) is DynamicLayer else one for one in cache.layers]
        if cache.layer_class_to_replicate is DynamicLayer:
            cache.layer_class_to_replicate = layer
