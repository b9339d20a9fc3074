"""A cache for generation that writes what is new, where transformers' own copies everything at every step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.generation import GenerationMixin, LogitsProcessorList

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
        self.shown: tuple[torch.Tensor, ...] = ()

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
        added = key_states.shape[2]
        if not self.has_room(seen + added):
            self.make_room(key_states, value_states, seen, seen + added)
        keys, values = self.rooms
        keys.narrow(2, seen, added).copy_(key_states)
        values.narrow(2, seen, added).copy_(value_states)
        return self.show(seen + added)

    def has_room(self, length: int) -> bool:
        """Whether so many positions fit where `keys` and `values` are.

        Args:
            length: Number of positions.

        Returns:
            False also where `keys` or `values` have been replaced.
        """
        if not self.shown or self.keys is not self.shown[0] or self.values is not self.shown[1]:
            return False
        return length <= self.rooms[0].shape[2]

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

    def show(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Let `keys` and `values` be what has been written.

        Args:
            length: Number of positions.

        Returns:
            Both.
        """
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
        elif not torch.equal(beam_idx, torch.arange(len(beam_idx), device=beam_idx.device)):
            spare = self.spare or tuple(torch.empty_like(room) for room in self.rooms)
            for shown, free in zip(self.shown, spare, strict=True):
                torch.index_select(shown, 0, beam_idx.to(shown.device), out=free.narrow(2, 0, shown.shape[2]))
            self.rooms, self.spare = spare, self.rooms
            self.show(self.keys.shape[2])


class SourceLayer(DynamicLayer):
    """Keys and values of sources, held once for all beams that read the same one.

    Attention to fewer keys than it has queries goes by `Attention.attend_by_source`.

    Args:
        num_beams: How many rows in succession have the same source.
    """

    def __init__(self, num_beams: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_beams = num_beams

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hold the keys and values of one row of each source.

        Args:
            key_states: *Shape:* (batch_size * num_beams, num_key_value_heads, source_len, head_dim)
            value_states: *Shape:* as key_states.
            args: As for `DynamicLayer.update`.
            kwargs: Likewise.

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
        rows = torch.arange(len(beam_idx), device=beam_idx.device)
        if not torch.equal(beam_idx // self.num_beams, rows // self.num_beams):
            self.spread()
            super().reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Let every row stand for several.

        Args:
            repeats: How many.
        """
        self.num_beams *= repeats

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some rows.

        Args:
            indices: Which.
        """
        self.spread()
        super().batch_select_indices(indices)

    def spread(self) -> None:
        """Hold keys and values of every row from now on."""
        repeats, self.num_beams = self.num_beams, 1
        super().batch_repeat_interleave(repeats)


class LogitsProcessors(LogitsProcessorList):
    """transformers' list, which looks at every signature in every step, without doing so."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Change the scores of the next token.

        Args:
            input_ids: What has been written. *Shape:* (batch_size, seq_len)
            scores: *Shape:* (batch_size, vocab_size)
            kwargs: What else processors need.

        Returns:
            *Shape:* as scores.
        """
        if kwargs:
            return super().__call__(input_ids, scores, **kwargs)
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class CachedGenerationMixin(GenerationMixin):
    """transformers' generation, with a cache that grows in place where it would make one that does not."""

    def _get_logits_processor(self, *args: Any, **kwargs: Any) -> LogitsProcessorList:
        return LogitsProcessors(super()._get_logits_processor(*args, **kwargs))

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        given = model_kwargs.get("past_key_values")
        result = super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        if given is None and current().cache_room != "never":
            copies = max(generation_config.num_beams or 1, generation_config.num_return_sequences or 1)
            let_grow(model_kwargs.get("past_key_values"), copies)
        return result


def let_grow(cache: Cache | None, num_beams: int) -> None:
    """Change the layers of a new cache that would copy into such that do not.

    Args:
        cache: A cache that holds nothing yet; other kinds than `DynamicCache` stay as they are.
        num_beams: How many rows in succession have the same source.
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
    if isinstance(cache, DynamicCache) and type(cache) is DynamicCache and not cache.offloading:
        cache.layers = [layer() if type(one) is DynamicLayer else one for one in cache.layers]
        if cache.layer_class_to_replicate is DynamicLayer:
            cache.layer_class_to_replicate = layer
