"""Relative positions with a vector for every bucket of distances, which disentangled attention projects."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.base.errors import ConfigError
from zoo.models.configuration import ZooConfig
from zoo.models.embedding import Position
from zoo.models.widths import vector_width


class DisentangledPosition(Position):
    """A normed vector for every bucket of distances, one table for all layers (DeBERTa, He et al. 2020, section 3.1).

    A bucket holds one distance up to half of the buckets of a side, and the others grow logarithmically up to
    `relative_attention_max_distance` (DeBERTa-v2; LTG-BERT, Samuel et al. 2023, section 3.2).
    [`zoo.models.attentions.disentangled.DisentangledAttention`][] reads it.
    """

    parameter_roles: ClassVar[dict[str, str]] = {"weight": "table", "norm_weight": "gain", "norm_bias": "bias"}

    has_bias = True
    read_by = ("disentangled", "disentangled-gated", "disentangled-other-rows")

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.weight = nn.Parameter(torch.empty(2 * config.relative_attention_num_buckets - 1, config.hidden_size))
        self.norm_weight, self.norm_bias = (nn.Parameter(torch.empty(config.hidden_size)) for _ in range(2))
        self.eps = config.layer_norm_eps
        self.std = math.sqrt(2 / (5 * vector_width(config)))

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Require attention that reads the table, embeddings of its width, and distances beyond the exact buckets."""
        buckets, distance = config.relative_attention_num_buckets, config.relative_attention_max_distance
        if config.attention not in cls.read_by:
            raise ConfigError(
                f"position={config.position!r} was given with attention={config.attention!r}, which does not read it; "
                "give attention='disentangled' or 'disentangled-gated'"
            )
        if config.embedding_size is not None:
            raise ConfigError(
                f"position={config.position!r} was given with embedding_size={config.embedding_size}; attention "
                "projects its table, which is as wide as hidden states"
            )
        if buckets < 4 or distance - 1 <= buckets // 2:
            raise ConfigError(
                f"relative_attention_num_buckets={buckets} was given with relative_attention_max_distance={distance}; "
                "there must be at least 4 buckets, and a distance of more than half of them"
            )

    def init_weights(self) -> None:
        """Draw the table as LTG-BERT does, from a truncated normal distribution with variance 2 / (5 * width)."""
        init.trunc_normal_(self.weight, mean=0.0, std=self.std, a=-2 * self.std, b=2 * self.std)
        init.ones_(self.norm_weight)
        init.zeros_(self.norm_bias)

    def forward(self) -> Tensor:
        """Norm the table. *Shape:* (2 * num_buckets - 1, hidden_size)."""
        return F.layer_norm(self.weight, self.norm_weight.shape, self.norm_weight, self.norm_bias, self.eps)

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """The normed table, which attention makes scores of. *Shape:* (1, 1, 2 * num_buckets - 1, hidden_size)."""
        return self()[None, None]

    @staticmethod
    def bucket(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
        """Bucket numbers of distances, query minus key, with `num_buckets` on a side. *Shape:* any, unchanged."""
        half = num_buckets // 2
        far = distance.abs().clamp(half - 1, max_distance - 1).float()
        steps = torch.ceil(torch.log(far / half) / math.log((max_distance - 1) / half) * (half - 1))
        return torch.where(distance.abs() <= half, distance, distance.sign() * (steps.long() + half))


def look_up(scores: Tensor, rows: Tensor) -> Tensor:
    """Choose for every query and key the score of their distance."""
    return scores.gather(-1, rows.expand(*scores.shape[:2], -1, -1))


def dropped(table: Tensor, probability: float, *, training: bool) -> Tensor:
    """Drop elements of the table in training."""
    return F.dropout(table, probability, training) if training and probability else table
