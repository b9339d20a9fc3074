"""The plain sum without a norm at its very beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.models.residual import Residual

if TYPE_CHECKING:
    from torch import nn

    from zoo.models.configuration import ZooConfig


class NoFirstNormResidual(Residual):
    """The plain sum without a norm before the first sublayer, since the embeddings have one (ModernBERT)."""

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        """Build one connection. Arguments as in the base class."""
        is_first = opens_layer and layer_idx == 0
        return cls(**{name: module for name, module in slots.items() if not (is_first and name == "norm_in")})
