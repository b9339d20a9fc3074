"""Value residual: every layer mixes the first layer's values into its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init

from ..attention import Heads
from .earlier import EarlierLayersAttention

if TYPE_CHECKING:
    from transformers.cache_utils import Cache

    from ..configuration import ZooConfig

FIRST = "values of the first layer"


class ValueResidualAttention(EarlierLayersAttention):
    """Attention to `lambda_1 * v_1 + lambda_2 * v`, of the values of the first layer and its own (Zhou et al. 2024).

    The first layer is the first one with attention: a mixer's layers have no values. The two factors are learned, one
    pair per layer, and start at one half (Learnable-ResFormer). The cache holds mixed values, so decoding needs nothing
    else. Cross attention is the ordinary one.
    """

    parameter_roles: ClassVar[dict[str, str]] = {"value_lambdas": "scalar"}

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        first = next(place for place, kind in enumerate(config.types_of_layers()) if kind != config.mixer_layer_type)
        self.mixes = layer_idx > first and not self.is_cross
        self.attends_as_usual = not self.mixes
        if self.mixes:
            self.value_lambdas = nn.Parameter(torch.empty(2))

    def init_weights(self) -> None:
        """Initialize to the mean of both."""
        if self.mixes:
            init.constant_(self.value_lambdas, 0.5)

    def extend(self, key: Tensor, value: Tensor, past: Cache | None, idx: int, earlier: Any) -> Heads:
        """Mix the values, and append them to those of earlier positions."""
        if self.mixes:
            (first,) = self.read(earlier, FIRST, value.device)
            value = self.value_lambdas[0] * first + self.value_lambdas[1] * value
        elif earlier is not None:
            earlier.keep(FIRST, value)
        return super().extend(key, value, past, idx, earlier)
