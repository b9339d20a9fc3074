"""A decode step: one token per row, and a cache of earlier tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from .graph_capture import CapturedGraph, capture
from .preallocated_cache import GrowingLayer, SourceLayer, self_attention_cache

DIMENSIONS: dict[str, tuple[int, str] | None] = {
    "input_ids": None,
    "position_ids": None,
    "attention_mask": (1, "read"),
    "decoder_input_ids": None,
    "decoder_position_ids": None,
    "decoder_attention_mask": (1, "read"),
    "encoder_outputs": (1, "source"),
}
"""Tensor inputs of a decoder's step, with the dimension that is a length, and its name; of an encoder's outputs the
hidden states. With an encoder, `attention_mask` is the source's."""

FLAGS = ("use_cache", "logits_to_keep", "return_dict")
"""Arguments of a step that are no tensors; a step with any other argument is not captured."""


@dataclass(frozen=True)
class DecodeStep:
    """A decode step: one token per row, and the cache."""

    tensors: dict[str, Tensor]
    flags: dict[str, Any]
    cache: Cache
    lengths: dict[str, int]  # Number of cached positions, capacity of the cache, and lengths of the masks

    @classmethod
    def of(cls, arguments: dict[str, Any], *, drops_masks: bool) -> DecodeStep | None:
        """A step of these arguments, None if it is no decode step; `drops_masks` drops those without padding."""
        cache = arguments["past_key_values"]
        tensors: dict[str, Tensor] = {}
        flags: dict[str, Any] = {}
        for name, value in arguments.items():
            if value is None or value is cache:
                continue
            if name in FLAGS and isinstance(value, (bool, int)):
                flags[name] = value
                continue
            if name == "encoder_outputs" and isinstance(value, BaseModelOutput):
                value = value.last_hidden_state
            if name not in DIMENSIONS or not isinstance(value, Tensor) or value.ndim not in (2, 3):
                return None
            if not (drops_masks and name.endswith("attention_mask") and bool(value.all())):
                tensors[name] = value
        ids = tensors.get("input_ids", tensors.get("decoder_input_ids"))
        if ids is None or ids.shape[1] != 1:
            return None
        step = cls(tensors, flags, cache, {"seen": self_attention_cache(cache).get_seq_length()})
        return step if step.makes_room(len(ids)) and step.measures() else None

    def makes_room(self, rows: int) -> bool:
        """Reserve room for one more position; False if the cache cannot be written in place or has other rows."""
        seen = self.lengths["seen"]
        if not seen or not all(type(layer) is SourceLayer and layer.is_initialized for layer in self.source_layers):
            return False
        for layer in self.own_layers:
            if type(layer) is not GrowingLayer or not layer.is_initialized:
                return False
            if layer.keys.shape[0] != rows or layer.keys.shape[2] != seen:
                return False
            layer.reserve(seen + 1)
        return True

    def measures(self) -> bool:
        """Look up all lengths."""
        for tensor, dimension in zip(self.inputs, self.dimensions, strict=True):
            if dimension is not None:
                place, name = dimension
                if self.lengths.setdefault(name, tensor.shape[place]) != tensor.shape[place]:
                    return False
        return True

    @property
    def dimensions(self) -> list[tuple[int, str] | None]:
        """Dimension and name of the length of each input."""
        sources = self.source_layers
        named = [(1, "source") if sources and name == "attention_mask" else DIMENSIONS[name] for name in self.tensors]
        return [*named, *[(2, "room")] * (2 * len(self.own_layers)), *[(2, "source")] * (2 * len(sources))]

    @property
    def own_layers(self) -> list[GrowingLayer]:
        """The cache's layers of self-attention."""
        return cast(list[GrowingLayer], self_attention_cache(self.cache).layers)

    @property
    def source_layers(self) -> list[SourceLayer]:
        is_pair = isinstance(self.cache, EncoderDecoderCache)
        return cast(list[SourceLayer], self.cache.cross_attention_cache.layers if is_pair else [])

    @property
    def rows(self) -> int:
        """Number of rows of the batch."""
        return len(next(iter(self.tensors.values())))

    @property
    def kind(self) -> tuple[Any, ...]:
        """Key of all steps that one captured step can replace: everything but lengths and values."""
        shapes = tuple(
            (name, tensor.dtype, tensor.ndim, tensor.shape[0], tensor.shape[2:])
            for name, tensor in self.tensors.items()
        )
        beams = tuple(layer.num_beams for layer in self.source_layers)
        return shapes, tuple(self.flags.items()), tuple(layer.dtype for layer in self.own_layers), beams

    @property
    def memory(self) -> list[Tensor]:
        """Buffers of keys and values of self-attention, then those of the sources."""
        own = [room for layer in self.own_layers for room in layer.rooms]
        return own + [states for layer in self.source_layers for states in (layer.keys, layer.values)]

    @property
    def inputs(self) -> list[Tensor]:
        """Everything that may differ in another step of this kind."""
        return [*self.tensors.values(), *self.memory]

    def capture(self, forward: Callable[..., Any]) -> CapturedGraph:
        """Capture a forward on arguments like these: inputs to logits and all keys and values of self-attention."""

        def step(*inputs: Any) -> tuple[Tensor, ...]:
            arguments = dict(zip(self.tensors, inputs, strict=False))
            if "encoder_outputs" in arguments:
                arguments["encoder_outputs"] = BaseModelOutput(last_hidden_state=arguments["encoder_outputs"])
            first, last = len(self.tensors), len(inputs) - len(self.lengths)
            cache = self.with_memory(inputs[first:last], seen=inputs[last])
            logits = forward(**arguments, **self.flags, past_key_values=cache).logits
            layers = self_attention_cache(cache).layers
            return (logits, *(states for layer in layers for states in (layer.keys, layer.values)))

        return capture(step, self.inputs, self.dimensions, self.lengths)

    def with_memory(self, memory: Sequence[Tensor], seen: int) -> Cache:
        """A copy of the cache on other tensors."""
        own = [copy.copy(layer) for layer in self.own_layers]
        sources = [copy.copy(layer) for layer in self.source_layers]
        pairs = list(zip(memory[::2], memory[1::2], strict=True))
        for layer, rooms in zip(own, pairs, strict=False):
            layer.rooms = rooms
            layer.show(seen)
        for source, states in zip(sources, pairs[len(own) :], strict=True):
            source.keys, source.values = states
        cache = copy.copy(self.cache)
        if isinstance(cache, EncoderDecoderCache):
            cache.self_attention_cache = copy.copy(cache.self_attention_cache)
            cache.cross_attention_cache = copy.copy(cache.cross_attention_cache)
            cache.cross_attention_cache.layers = sources
        self_attention_cache(cache).layers = own
        return cache

    def advance(self, states: Sequence[Tensor]) -> None:
        """Advance the cache by one position; `states` are the buffers of all keys and values of self-attention."""
        for place, layer in enumerate(self.own_layers):
            layer.keys, layer.values = layer.shown = (states[2 * place], states[2 * place + 1])
