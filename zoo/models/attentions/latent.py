"""Multi-head latent attention: keys and values are computed from one small vector per token, which is cached."""

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init

from zoo.base.errors import ConfigError
from zoo.fast.modules import Identity
from zoo.registry.names import is_number

from ..attention import Attention, Mixed
from ..choices import AttentionScale
from ..configuration import ZooConfig
from ..embedding import Rotation
from ..norms import build_norm
from ..parts import option

WIDTHS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim")  # Options of the part that are sizes


def latent_norm_eps(config: ZooConfig) -> float:
    """The epsilon of the norms on latent vectors."""
    given: float | None = getattr(config, "latent_norm_eps", None)
    return config.layer_norm_eps if given is None else given


class LatentExpansion(nn.Linear):
    """The projection of latent vectors to the keys and values of all heads, which can also be applied to queries."""

    def __init__(self, rank: int, heads: int, key_width: int, value_width: int) -> None:
        super().__init__(rank, heads * (key_width + value_width), bias=False)
        self.heads, self.key_width = heads, key_width

    def forward(self, states: Tensor, side: str | None = None) -> Tensor:
        """Expand latent vectors, or apply one side to queries or mixed latent vectors, which avoids the expansion.

        *Shape:* (batch_size, seq_len, rank) to keys and values, (batch_size, seq_len, heads * (key_width +
        value_width)); with "keys", (batch_size, heads, seq_len, key_width) to (..., rank); with "values", (batch_size,
        heads, seq_len, rank) to (..., value_width).
        """
        if side is None:
            return super().forward(states)
        by_head = self.weight.unflatten(0, (self.heads, -1))
        if side == "keys":
            return states @ by_head[:, : self.key_width]
        return states @ by_head[:, self.key_width :].transpose(-1, -2)


class LatentAttention(Attention):
    """Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1).

    Queries and keys have a part without positions and a rotated part of width `head_dim`, which is shared by all heads
    of the keys. The cache holds the rotated part in place of keys, and the latent vectors in place of values. For one
    new token, queries are projected to the latent space instead of expanding keys and values (section 2.1.2).

    `q_lora_rank` (0 for queries without a latent vector), `kv_lora_rank`, `qk_nope_head_dim` and `v_head_dim` are the
    widths of DeepSeek's configuration; `head_dim` is its `qk_rope_head_dim`. `latent_norm_eps` is the epsilon of the
    norms on latent vectors, by default that of the other norms.
    """

    # FlashAttention needs values as wide as keys.
    backends = ("sdpa", "eager", "flex_attention")
    caches_heads = False
    options: ClassVar[dict[str, Any]] = {
        "q_lora_rank": 0,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "latent_norm_eps": None,
    }

    @classmethod
    def unread(cls, config: ZooConfig) -> tuple[str, ...]:
        """Settings that models with it do not read: every head has its own keys and values."""
        return ("num_key_value_heads",)

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        self.num_key_value_groups = 1
        if config.attention_scale == AttentionScale.HEAD_DIM:
            self.scaling = self.key_width(config) ** -0.5

    @classmethod
    def key_width(cls, config: ZooConfig) -> int:
        return int(option(config, cls, "qk_nope_head_dim")) + config.head_dim

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Require positive widths and a positive epsilon, and no setting that needs keys of every head."""
        widths = {name: option(config, cls, name) for name in WIDTHS}
        if min(widths.values()) < 0 or not all(widths[name] for name in widths if name != "q_lora_rank"):
            raise ConfigError(f"{widths} were given; widths must be at least 1 (q_lora_rank=0 is for queries without)")
        eps = option(config, cls, "latent_norm_eps")
        if eps is not None and not (is_number(eps) and eps > 0):
            raise ConfigError(f"latent_norm_eps={eps!r} was given; it must be positive, or None for layer_norm_eps")
        if config.is_encoder_decoder or config.add_cross_attention:
            raise ConfigError("attention='latent' was given with cross attention, which has no latent vectors to read")
        if config.qk_norm is not None:
            raise ConfigError(
                f"qk_norm={config.qk_norm!r} was given with attention='latent', which does not cache keys"
            )

    def build_projections(self, config: ZooConfig) -> None:
        query_rank, rank, self.nope_dim, value_dim = (option(config, type(self), name) for name in WIDTHS)
        norms = copy.copy(config)
        norms.layer_norm_eps = latent_norm_eps(config)
        width, heads, bias = config.hidden_size, config.num_attention_heads, config.attention_bias
        self.q_a_proj = nn.Linear(width, query_rank, bias=bias) if query_rank else Identity()
        self.q_a_norm = build_norm(norms, query_rank) if query_rank else Identity()
        self.q_proj = nn.Linear(query_rank or width, heads * (self.nope_dim + config.head_dim), bias=False)
        self.kv_a_proj = nn.Linear(width, rank + config.head_dim, bias=bias)
        self.kv_a_norm = build_norm(norms, rank)
        self.kv_b_proj = LatentExpansion(rank, heads, self.nope_dim, value_dim)
        self.o_proj = nn.Linear(heads * value_dim, width, bias=config.attention_out_bias)

    def init_values(self, gain: float) -> None:
        """Scale the rows that expand latent vectors to values, after they are drawn."""
        weight = self.kv_b_proj.weight.detach().clone()
        weight.unflatten(0, (self.kv_b_proj.heads, -1))[:, self.nope_dim :] *= gain
        init.copy_(self.kv_b_proj.weight, weight)

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project queries, the shared part of keys, and latent vectors."""
        query = self.q_proj(self.q_a_norm(self.q_a_proj(hidden_states)))
        latent, key = self.kv_a_proj(hidden_states).split([self.kv_b_proj.in_features, self.head_dim], dim=-1)
        heads = query.unflatten(-1, (self.config.num_attention_heads, -1)).transpose(1, 2)
        return heads, key.unsqueeze(1), self.kv_a_norm(latent).unsqueeze(1)

    def rotate_heads(self, query: Tensor, key: Tensor, rotation: Rotation) -> Rotation:
        plain, turning = query.split([self.nope_dim, self.head_dim], dim=-1)
        turned, key = self.rotate(turning, key, rotation)
        return torch.cat([plain, turned], dim=-1), key

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        """Mix values expanded from latent vectors, or the latent vectors themselves."""
        latent, expand = value, self.kv_b_proj
        # Neither hooked nor replaced (adapters, quantisation); an UnpaddedMask counts queries.
        is_plain = type(expand) is LatentExpansion and not (expand._forward_hooks or expand._forward_pre_hooks)
        if is_plain and isinstance(attention_mask, (Tensor, type(None))) and query.shape[2] == 1:
            return self.attend_to_latents(query, key, latent, attention_mask, **kwargs)
        expanded = self.kv_b_proj(latent.squeeze(1)).unflatten(-1, (query.shape[1], -1)).transpose(1, 2)
        own, value = expanded.split([self.nope_dim, expanded.shape[-1] - self.nope_dim], dim=-1)
        key = torch.cat([own, key.expand(-1, query.shape[1], -1, -1)], dim=-1)
        return super().attend(query, key, value, attention_mask, **kwargs)

    def attend_to_latents(
        self,
        query: Tensor,
        key: Tensor,
        latent: Tensor,
        attention_mask: Any,
        position_bias: Tensor | None = None,
        **kwargs: Any,
    ) -> Mixed:
        """Attention of one query per head to latent vectors, (batch_size, 1, key_len, kv_lora_rank), of all heads.

        The heads become query positions. Other shapes, and the results, are as for `attend`.
        """
        plain, turned = query.split([self.nope_dim, self.head_dim], dim=-1)
        query = torch.cat([self.kv_b_proj(plain, "keys"), turned], dim=-1).transpose(1, 2)
        mask, bias = (None if one is None else one.transpose(1, 2) for one in (attention_mask, position_bias))
        key = torch.cat([latent, key], dim=-1)
        # mixed: (batch_size, num_attention_heads, 1, kv_lora_rank)
        mixed, weights = super().attend(query, key, latent, mask, position_bias=bias, is_causal=False, **kwargs)
        values = self.kv_b_proj(mixed, "values").transpose(1, 2)
        return values, weights if weights is None else weights.transpose(1, 2)
