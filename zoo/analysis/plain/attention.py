"""Attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import Config, NoPlainForm
from .norms import build_norm
from .positions import rotate

Cache = dict[str, Tensor]


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: Config, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        if config.attention not in ("multi-head", "masked-rows-uniform"):
            raise NoPlainForm("attention")
        query_width = config.num_attention_heads * config.head_dim
        key_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=config.attention_out_bias)
        if config.qk_norm == "head":
            self.q_norm = build_norm(config, config.head_dim, config.layer_norm_eps)
            self.k_norm = build_norm(config, config.head_dim, config.layer_norm_eps)
        elif config.qk_norm == "full":
            self.q_norm = build_norm(config, query_width, config.layer_norm_eps)
            self.k_norm = build_norm(config, key_width, config.layer_norm_eps)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        bias: Tensor | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
        cache: Cache | None = None,
        memory: Tensor | None = None,
    ) -> Tensor:
        """Mix the values of visible keys. *Shape:* x (batch, length, hidden_size), mask (..., 1, length, keys)."""
        source = x if memory is None else memory
        query, key, value = self.q_proj(x), self.k_proj(source), self.v_proj(source)
        if self.config.qk_norm == "full":
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (y.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2) for y in (query, key, value))
        if self.config.qk_norm == "head":
            # Queries and keys have one length, so that scores stay small (Henry et al. 2020, section 3).
            query, key = self.q_norm(query), self.k_norm(key)
        if rotation is not None:
            query, key = rotate(query, rotation, self.config), rotate(key, rotation, self.config)
        if cache is not None:
            # Keys and values of earlier tokens, which generation does not compute again.
            if cache:
                key, value = torch.cat([cache["key"], key], dim=2), torch.cat([cache["value"], value], dim=2)
            cache["key"], cache["value"] = key, value
        if self.config.num_key_value_heads < self.config.num_attention_heads:
            # Several queries share a key and a value (Ainslie et al. 2023, GQA, section 2.2).
            groups = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        if self.config.attention_scale == "head-dim":
            scores = query @ key.transpose(-1, -2) * self.config.head_dim**-0.5
        elif self.config.attention_scale == "hidden-size" and "scores-scaled-by-model-width" in self.config.quirks:
            # The original's defect: the root of the model's width, where the paper has that of a head's.
            scores = query @ key.transpose(-1, -2) * self.config.hidden_size**-0.5
        elif self.config.attention_scale == "hidden-size":
            scores = query @ key.transpose(-1, -2) * self.config.hidden_size**-0.5
        elif self.config.attention_scale == "none":
            # Scores are not scaled: the initial values of the projections are (T5).
            scores = query @ key.transpose(-1, -2)
        else:
            scores = query @ key.transpose(-1, -2) / self.config.attention_scale
        if self.config.attn_logit_softcapping is not None:
            # Scores are bounded (Gemma 2, section 2).
            scores = torch.tanh(scores / self.config.attn_logit_softcapping) * self.config.attn_logit_softcapping
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        if self.config.attention == "masked-rows-uniform":
            # The original's defect: a query that sees no key gives all of them the same weight.
            scores = scores.masked_fill(~mask, -1e9)
        else:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        if self.config.attention_dropout:
            weights = nn.functional.dropout(weights, self.config.attention_dropout, self.training)
        x = (weights @ value).transpose(1, 2).flatten(-2)
        return self.o_proj(x)
