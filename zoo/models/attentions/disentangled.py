"""Disentangled attention: scores of contents with contents, and of contents with relative positions."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.cache_utils import Cache

from zoo.base.errors import ConfigError
from zoo.fast.modules import QuickLayerNorm

from ..attention import Attention, Mixed
from ..configuration import ZooConfig
from ..embedding import Position
from ..norms import build_norm
from ..widths import vector_width


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


class DisentangledAttention(Attention):
    """Scores `(q k + q k_r + q_r k) / sqrt(3 d)`, with queries and keys of the relative position r in addition.

    DeBERTa (He et al. 2020, equation 4). As in LTG-BERT (Samuel et al. 2023, section 3), the projections of contents
    also project positions, and a norm with weights and biases follows the output projection. Another `attention_scale`
    is in the place of sqrt(d).
    """

    backends = ("sdpa", "eager")
    supports_unpadding = False

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        self.reads_table = config.position == "disentangled"
        self.scaling /= 3**0.5
        self.num_buckets = config.relative_attention_num_buckets
        self.max_distance = config.relative_attention_max_distance
        self.bucket = DisentangledPosition.bucket

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        wrong = {
            "num_key_value_heads": config.num_key_value_heads != config.num_attention_heads,
            "qk_norm": config.qk_norm is not None,
            "is_encoder_decoder": config.is_encoder_decoder or config.add_cross_attention,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            what = "cross attention" if name == "is_encoder_decoder" else f"{name}={getattr(config, name)!r}"
            raise ConfigError(
                f"attention={config.attention!r} was given with {what}; it is for "
                "as many heads of keys as of queries, without norms on them and without "
                "cross attention"
            )

    def build_projections(self, config: ZooConfig) -> None:
        super().build_projections(config)
        self.o_norm: nn.Module = QuickLayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        position_bias: Tensor | None = None,
        *args: Any,
        past_key_values: Cache | None = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> Mixed:
        """Mix the values of all visible positions; the bias of positions of this kind is their table."""
        if position_bias is not None and self.reads_table:
            seen, place = 0, self.layer_idx if step is None else step
            if past_key_values is not None:
                seen = past_key_values.get_seq_length(place)
                _, kwargs["first_key"] = past_key_values.get_mask_sizes(hidden_states.shape[1], place)
            # A cache changes its count.
            kwargs["queries"] = torch.arange(hidden_states.shape[1], device=hidden_states.device) + seen
        kwargs |= {"past_key_values": past_key_values, "step": step}
        return super().forward(hidden_states, attention_mask, position_bias, *args, **kwargs)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any,
        position_bias: Tensor | None = None,
        queries: Tensor | None = None,
        first_key: int = 0,
        **kwargs: Any,
    ) -> Mixed:
        if position_bias is not None and queries is not None:
            keys = torch.arange(key.shape[2], device=query.device) + first_key
            rows = self.num_buckets - 1 + self.bucket(queries[:, None] - keys, self.num_buckets, self.max_distance)
            position_bias = self.relative_scores(query, key, position_bias[0, 0], rows)
        return super().attend(query, key, value, attention_mask, position_bias=position_bias, **kwargs)

    def relative_scores(self, query: Tensor, key: Tensor, table: Tensor, rows: Tensor) -> Tensor:
        """Score contents with relative positions, by all rows of the table and not by all pairs of positions."""
        if self.training and self.dropout:
            table = F.dropout(table, self.dropout)
        table = table[None]
        query_place, key_place = self.places(self.q_proj(table), self.k_proj(table))
        of_keys = look_up(query @ key_place.mT, rows)
        of_queries = look_up(key @ query_place.mT, rows.T).mT
        return self.scaling * (of_keys + of_queries)

    def places(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Split projected rows of the table into heads. *Shape:* (1, num_heads, num_rows, head_dim), both."""
        return self.split_heads(queries), self.split_heads(keys)

    def merge_heads(self, mixed: Tensor, hidden_states: Tensor, value: Tensor | None) -> Tensor:
        normed: Tensor = self.o_norm(super().merge_heads(mixed, hidden_states, value))
        return normed


class GatedDisentangledAttention(DisentangledAttention):
    """Disentangled attention with GELU gates and a norm before the output projection (GPT-BERT, section 3)."""

    def build_projections(self, config: ZooConfig) -> None:
        super().build_projections(config)
        self.gate_proj = nn.Linear(config.hidden_size, self.o_proj.in_features, bias=config.attention_bias)
        self.o_norm = build_norm(config, self.o_proj.in_features)

    def merge_heads(self, mixed: Tensor, hidden_states: Tensor, value: Tensor | None) -> Tensor:
        gated = mixed.reshape(*hidden_states.shape[:-1], -1) * F.gelu(self.gate_proj(hidden_states))
        return self.o_proj(self.o_norm(gated))
