"""Attention with weight vectors of length one, and learned factors on queries and keys."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ..attention import Attention, Mixed
from ..choices import AttentionScale
from ..configuration import ZooConfig
from ..unit import RescaledWeights, UnitWeights


class NormalizedAttention(UnitWeights, Attention):
    """Attention with weight vectors of length one (Loshchilov et al. 2024, nGPT, section 2.3.2, equations 13 to 16).

    Queries and keys are normalized if `norm="unit"` and `qk_norm="head"`, and then have one learned factor per channel,
    the same for both; scores are multiplied by sqrt(head_dim), unless `attention_scale` is set.
    """

    keeps_distances = False  # a rotation's two channels have a factor each, after it

    unit_weights: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("q_proj.weight", "k_proj.weight", "v_proj.weight"), -1),
        "o_proj.weight": 0,
    }

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        if config.attention_scale == AttentionScale.HEAD_DIM:
            self.scaling = self.head_dim**0.5

    def build_projections(self, config: ZooConfig) -> None:
        """Build the projections, and the factors of queries and keys."""
        super().build_projections(config)
        self.qk_scales = RescaledWeights(self.q_proj.out_features, 1.0, config.hidden_size**-0.5)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        """Mix the values, with the learned factors on queries and keys."""
        # Both have the factors, after the rotation. Queries have them twice here: that gives the same scores, also with
        # grouped queries, and keys are cached without them.
        factors = self.qk_scales().square().to(query.dtype).view(query.shape[1], 1, -1)
        return super().attend(query * factors, key, value, attention_mask, **kwargs)
