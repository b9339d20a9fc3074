"""Rotary position embeddings with wavelengths that differ between layers with and without a sliding window."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from ..configuration import ZooConfig
from ..embedding import Position, Rotation
from ..fields import LAYER_TYPES
from ..rotary import RotaryPosition


class RotaryByLayerPosition(Position):
    """Rotary embeddings with settings for every layer type (Gemma team 2025, Gemma 3, section 2; ModernBERT).

    Layers that see the whole text have long wavelengths, those with a window need short ones only.
    """

    uses_rope_parameters = True
    rope_layer_types = LAYER_TYPES
    default_rope_parameters: ClassVar[dict[str, Any]] = {
        "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    rotate = staticmethod(RotaryPosition.rotate)

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.by_type = nn.ModuleDict()
        self.by_type.update({layer_type: RotaryPosition(own) for layer_type, own in by_layer_type(config).items()})
        self.counts_padding = all(part.counts_padding for part in self.by_type.values())

    @classmethod
    def changes_after(cls, config: ZooConfig) -> int | None:
        """The shortest of all layer types."""
        found = (RotaryPosition.changes_after(own) for own in by_layer_type(config).values())
        return min((length for length in found if length is not None), default=None)

    def outgrows_cache(self, attention_mask: Any, seen: int, length: int) -> bool:
        """Whether those of any layer type do."""
        parts = cast("Iterable[RotaryPosition]", self.by_type.values())
        return any(part.outgrows_cache(attention_mask, seen, length) for part in parts)

    def rotation(self, hidden_states: Tensor, position_ids: Tensor) -> Rotation:
        """Those of layers that see the whole text."""
        return self.rotations(hidden_states, position_ids, ["full_attention"])["full_attention"]

    def rotations(self, hidden_states: Tensor, position_ids: Tensor, layer_types: Iterable[str]) -> dict[str, Rotation]:
        """Cosines and sines for each layer type."""
        parts = {layer_type: cast("RotaryPosition", self.by_type[layer_type]) for layer_type in layer_types}
        return {layer_type: part.rotation(hidden_states, position_ids) for layer_type, part in parts.items()}


def by_layer_type(config: ZooConfig) -> dict[str, ZooConfig]:
    """The configuration of each layer type, with its own rotary settings."""
    own = {layer_type: copy.copy(config) for layer_type in config.rope_parameters}
    for layer_type, one in own.items():
        one.rope_parameters = config.rope_parameters[layer_type]
    return own
