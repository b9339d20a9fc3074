"""A gated feed-forward network with weight vectors of length one, and learned factors on the inner channels."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ..configuration import ZooConfig
from ..layers import GatedFeedForward
from ..unit import RescaledWeights, UnitWeights


class NormalizedFeedForward(UnitWeights, GatedFeedForward):
    """A gated network with weight vectors of length one (Loshchilov et al. 2024, nGPT, section 2.4).

    Both inner vectors have one learned factor per channel, and the input of the gate is multiplied by
    sqrt(hidden_size).
    """

    unit_weights: ClassVar[dict[str, int]] = {"gate_proj.weight": -1, "up_proj.weight": -1, "down_proj.weight": 0}

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.gate_scales = RescaledWeights(config.intermediate_size, 1.0, 1.0)
        self.up_scales = RescaledWeights(config.intermediate_size, 1.0, 1.0)
        self.gate_factor = config.hidden_size**0.5

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the activated gate and its input."""
        gate, up = super().project(hidden_states)
        return gate * (self.gate_scales() * self.gate_factor), up * self.up_scales()
