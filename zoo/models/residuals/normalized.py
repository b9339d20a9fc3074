"""Residual connection on the hypersphere (a learned step towards the output), and one without the first norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from zoo.models.configuration import ZooConfig
from zoo.models.norms import build_norm
from zoo.models.residual import Residual
from zoo.models.unit import RescaledWeights
from zoo.models.validation import require_own_layers


class NoFirstNormResidual(Residual):
    """The plain sum without a norm before the first sublayer, since the embeddings have one (ModernBERT)."""

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Require `share_layers=False`."""
        given, why = f"residual={config.residual!r}", "the first one has fewer norms"
        require_own_layers(config, given, why, "residual='plain'")

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        is_first = opens_layer and layer_idx == 0
        return cls(**{name: module for name, module in slots.items() if not (is_first and name == "norm_in")})


RATE = 0.05  # The step of a new model


class NormalizedResidual(Residual):
    """`norm(x + |alpha| * (norm(sublayer(x)) - x))` (Loshchilov et al. 2024, nGPT, section 2.2, equations 10 and 11).

    The norms are those of `norm`: with "unit", the stream moves on the hypersphere. Other norm slots are filled by
    `norm_placement`.

    Args:
        rates: The learned steps, "eigen learning rates", one a channel.
        slots: As in the base class.
    """

    def __init__(self, rates: RescaledWeights, **slots: nn.Module) -> None:
        super().__init__(**slots)
        self.rates = rates

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        norms = {slot: slots.get(slot) or build_norm(config) for slot in ("norm_branch", "norm_out")}
        return cls(RescaledWeights(config.hidden_size, RATE, config.hidden_size**-0.5), **{**slots, **norms})

    def forward(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        branch = self.branch(hidden_states, sublayer, *args, **kwargs)
        skip = self.skip(hidden_states)
        return self.norm_out(skip + self.added(skip, branch))

    def added(self, skip: Tensor, branch: Tensor) -> Tensor:
        return self.rates().abs() * (branch - skip)
