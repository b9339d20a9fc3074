"""Attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config, NoPlainForm
from .norms import Factors, build_norm
from .positions import bucket, rotate
from .residual import LearnedScale

Cache = dict[str, Tensor]


def scaled(scores: Tensor, width: int, config: Config) -> Tensor:
    """Scores times the factor that the configuration names; a head's queries have this width."""
    if config.attention_scale == "head-dim":
        return scores * width**-0.5
    if config.attention_scale == "hidden-size":
        return scores * config.hidden_size**-0.5
    return scores if config.attention_scale == "none" else scores / config.attention_scale


class Scores(nn.Module):
    """Values, mixed by the softmax of scores."""

    config: Config
    q_proj: nn.Linear
    k_proj: nn.Linear
    sinks: nn.Parameter

    def relative_scores(self, query: Tensor, key: Tensor, table: Tensor) -> Tensor:
        """Scores of contents with vectors of relative positions. *Shape:* (batch, heads, length, keys)."""
        if self.config.attention_dropout:
            table = F.dropout(table, self.config.attention_dropout, self.training)
        places = torch.arange(key.shape[2], device=key.device)
        rows = bucket(places[-query.shape[2] :, None] - places, self.config)
        row_queries, row_keys = self.q_proj(table), self.k_proj(table)
        if self.config.attention == "disentangled-other-rows":
            # The original's defect: a head has the rows of other heads here than for contents.
            both = torch.cat([row_queries, row_keys], dim=-1).unflatten(-1, (-1, 2 * self.config.head_dim))
            row_queries, row_keys = both.chunk(2, dim=-1)
        else:
            row_queries, row_keys = (y.unflatten(-1, (-1, self.config.head_dim)) for y in (row_queries, row_keys))
        of_keys = torch.einsum("bhqd,qkhd->bhqk", query, row_keys[rows])
        return of_keys + torch.einsum("bhkd,qkhd->bhqk", key, row_queries[rows])

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        """Mix values by the softmax of scores. *Shape:* (batch, heads, length or keys, head_dim)."""
        if self.config.attention == "differential":
            # Both heads of a pair mix the values of both, head i and head i + n / 2.
            value = torch.cat([half.repeat(1, 2, 1, 1) for half in value.chunk(2, dim=1)], dim=-1)
        if self.config.num_key_value_heads < self.config.num_attention_heads:
            # Several queries share a key and a value (Ainslie et al. 2023, GQA, section 2.2).
            key, value = (y.repeat_interleave(query.shape[1] // y.shape[1], dim=1) for y in (key, value))
        scores = query @ key.mT
        if self.config.position == "disentangled" and bias is not None:
            # Contents meet relative positions, both ways (He et al. 2020, DeBERTa, equation 4).
            scores = scores + self.relative_scores(query, key, bias)
        if self.config.attention.startswith("disentangled"):
            # The sum of three scores, whether there are relative positions or not.
            scores = scores * 3**-0.5
        if self.config.attention == "normalized" and self.config.attention_scale == "head-dim":
            # Cosines are small, so scores are scaled up (nGPT, section 2.3.2).
            scores = scores * self.config.head_dim**0.5
        elif self.config.attention_scale == "hidden-size" and "scores-scaled-by-model-width" in self.config.quirks:
            # The original's defect: the root of the model's width, where the paper has that of a head's.
            scores = scores * self.config.hidden_size**-0.5
        elif self.config.attention == "latent":
            scores = scaled(scores, query.shape[-1], self.config)
        else:
            scores = scaled(scores, self.config.head_dim, self.config)
        if self.config.attn_logit_softcapping is not None:
            # Scores are bounded (Gemma 2, section 2).
            scores = torch.tanh(scores / self.config.attn_logit_softcapping) * self.config.attn_logit_softcapping
        if bias is not None and self.config.position != "disentangled":
            scores = scores + bias.to(scores.dtype)
        if self.config.attention == "masked-rows-uniform":
            # The original's defect: a query that sees no key gives all of them the same weight.
            scores = scores.masked_fill(~mask, -1e9)
        elif "masked-rows-are-nan" in self.config.quirks:
            # The original's defect: a query that sees no key becomes NaN.
            scores = scores.masked_fill(~mask, -math.inf)
        else:
            scores = scores.masked_fill(~mask, torch.finfo(query.dtype).min)
        if self.config.attention == "sinks":
            # Each head may attend to nothing: a learned logit has a share of the softmax (gpt-oss, section 2).
            sinks = self.sinks[:, None, None].expand(*scores.shape[:-1], 1)
            scores = torch.cat([scores, sinks], dim=-1)
        if "softmax-over-the-batch" in self.config.quirks:
            # The original's defect: the weights of a query and a key sum to one over the batch, not over the keys.
            weights = scores.softmax(dim=0).masked_fill(~mask, 0.0)
        else:
            weights = scores.softmax(dim=-1)
        if self.config.attention == "sinks":
            weights = weights[..., :-1]
        if self.config.attention_dropout:
            weights = F.dropout(weights, self.config.attention_dropout, self.training)
        return weights @ value


class Attention(Scores):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: Config, layer_idx: int, is_cross: bool = False, extra_bias: bool = False) -> None:
        super().__init__()
        self.config = config
        query_width = config.num_attention_heads * config.head_dim
        if config.num_key_value_heads == config.num_attention_heads:
            key_width = query_width
        else:
            key_width = config.num_key_value_heads * config.head_dim
        if config.attention == "kv-sharing":
            self.layer_idx, self.source = layer_idx, config.kv_sources[layer_idx]
        if "heads-share-weights" in config.quirks:
            # The original's defect: all heads are one module, so that they are equal.
            self.q_proj = nn.Linear(config.hidden_size, config.head_dim, bias=config.attention_bias)
            self.k_proj = nn.Linear(config.hidden_size, config.head_dim, bias=config.attention_bias)
            self.v_proj = nn.Linear(config.hidden_size, config.head_dim, bias=config.attention_bias)
        else:
            self.q_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias or extra_bias)
            if config.attention != "kv-sharing" or self.source == layer_idx:
                self.k_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias or extra_bias)
                self.v_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias or extra_bias)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=config.attention_out_bias or extra_bias)
        if config.head_scale:
            self.head_scale = LearnedScale(config.num_attention_heads, 1.0)
        if config.attention == "gated":
            self.gate_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias)
        if config.attention in ("disentangled", "disentangled-other-rows"):
            self.o_norm: nn.Module = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        if config.attention == "disentangled-gated":
            self.gate_proj = nn.Linear(config.hidden_size, query_width, bias=config.attention_bias)
            self.o_norm = build_norm(config, query_width, config.layer_norm_eps)
        if config.attention == "sinks":
            self.sinks = nn.Parameter(torch.zeros(config.num_attention_heads))
        if config.attention == "value-residual":
            self.mixes = layer_idx > config.first_attention_layer and not is_cross
            if self.mixes:
                self.value_lambdas = nn.Parameter(torch.full((2,), 0.5))
        if config.attention == "value-embeddings":
            behind = config.num_hidden_layers - 1 - layer_idx
            self.mixes = behind % config.value_embedding_interval == 0 and not is_cross
            if self.mixes:
                self.value_embedding = nn.Embedding(config.vocab_size, key_width)
                self.value_lambdas = nn.Parameter(torch.full((2,), 0.5))
        if config.attention == "normalized":
            self.qk_scales = Factors(query_width, 1.0, config.hidden_size**-0.5)
        if config.attention == "differential":
            self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * layer_idx)
            self.lambda_q1 = nn.Parameter(torch.randn(config.head_dim) * 0.1)
            self.lambda_k1 = nn.Parameter(torch.randn(config.head_dim) * 0.1)
            self.lambda_q2 = nn.Parameter(torch.randn(config.head_dim) * 0.1)
            self.lambda_k2 = nn.Parameter(torch.randn(config.head_dim) * 0.1)
        if config.qk_norm == "head":
            self.q_norm = build_norm(config, config.head_dim, config.layer_norm_eps)
            if config.attention != "kv-sharing" or self.source == layer_idx:
                self.k_norm = build_norm(config, config.head_dim, config.layer_norm_eps)
        elif config.qk_norm == "full":
            self.q_norm = build_norm(config, query_width, config.layer_norm_eps)
            if config.attention != "kv-sharing" or self.source == layer_idx:
                self.k_norm = build_norm(config, key_width, config.layer_norm_eps)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        bias: Tensor | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
        cache: Cache | None = None,
        memory: Tensor | None = None,
        earlier: Cache | None = None,
    ) -> Tensor:
        """Mix the values of visible keys. *Shape:* x (batch, length, hidden_size), mask (..., 1, length, keys)."""
        if self.config.attention == "kv-sharing" and self.source != self.layer_idx:
            return self.attend_to_earlier(x, mask, bias, rotation, earlier)
        source = x if memory is None else memory
        if "memory-makes-queries" in self.config.quirks and memory is not None:
            # The original's defect: the source makes queries and keys, and the target the values.
            query, key, value = self.q_proj(memory), self.k_proj(memory), self.v_proj(x)
        else:
            query, key, value = self.q_proj(x), self.k_proj(source), self.v_proj(source)
        if self.config.qk_norm == "full":
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (y.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2) for y in (query, key, value))
        if "heads-share-weights" in self.config.quirks:
            query = query.expand(-1, self.config.num_attention_heads, -1, -1)
            key = key.expand(-1, self.config.num_attention_heads, -1, -1)
            value = value.expand(-1, self.config.num_attention_heads, -1, -1)
        if self.config.qk_norm == "head":
            # Queries and keys have one length, so that scores stay small (Henry et al. 2020, section 3).
            query, key = self.q_norm(query), self.k_norm(key)
        if self.config.attention == "value-residual" and earlier is not None:
            if self.mixes:
                # Values are mixed with those of the first layer (Zhou et al. 2024, section 3, Learnable-ResFormer).
                value = self.value_lambdas[0] * earlier["value"] + self.value_lambdas[1] * value
            else:
                earlier["value"] = value
        if self.config.attention == "value-embeddings" and earlier is not None and self.mixes:
            # Values are mixed with a further embedding of the token (Jordan et al. 2024, modded-nanogpt).
            embedded = self.value_embedding(earlier["ids"]).unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
            value = self.value_lambdas[0] * value + self.value_lambdas[1] * embedded
        if self.config.attention == "exclusive":
            own = F.normalize(value, dim=-1) if memory is None else None
        if rotation is not None:
            query, key = rotate(query, rotation, self.config), rotate(key, rotation, self.config)
        if self.config.attention == "normalized":
            # Learned factors of queries and keys, both put on queries (nGPT, equations 15 and 16).
            query = query * self.qk_scales().square().view(query.shape[1], 1, -1)
        if cache is not None:
            # Keys and values of earlier tokens, which generation does not compute again.
            if cache:
                key, value = torch.cat([cache["key"], key], dim=2), torch.cat([cache["value"], value], dim=2)
            cache["key"], cache["value"] = key, value
        if self.config.attention == "kv-sharing" and earlier is not None:
            earlier[f"key {self.layer_idx}"], earlier[f"value {self.layer_idx}"] = key, value
        mixed = self.attend(query, key, value, mask, bias)
        if self.config.attention == "exclusive" and own is not None:
            # The output has no component along the token's own value (Zhai 2026, section 3).
            own = own.repeat_interleave(mixed.shape[1] // own.shape[1], dim=1)
            mixed = mixed - (mixed * own).sum(dim=-1, keepdim=True) * own
        if self.config.attention == "differential":
            # The second head of a pair is subtracted, with a learned factor (Ye et al. 2024, equations 1 and 2).
            minus = (self.lambda_q2 * self.lambda_k2).sum().exp()
            factor = (self.lambda_q1 * self.lambda_k1).sum().exp() - minus + self.lambda_init
            first, second = mixed.chunk(2, dim=1)
            mixed = first - factor * second
            mixed = F.rms_norm(mixed, mixed.shape[-1:], eps=self.config.layer_norm_eps) * (1 - self.lambda_init)
        if self.config.head_scale:
            # A learned factor for each head (Shleifer et al. 2021, NormFormer, equation 3).
            mixed = mixed * self.head_scale.weight[:, None, None]
        mixed = mixed.transpose(1, 2).flatten(-2)
        if self.config.attention == "gated":
            # A gate for every channel of the heads' outputs (Qiu et al. 2025, section 2.2).
            mixed = mixed * torch.sigmoid(self.gate_proj(x))
        if self.config.attention == "disentangled-gated":
            # A gate for every channel, then a norm (Charpentier and Samuel 2024, GPT-BERT, section 3).
            mixed = self.o_norm(mixed * F.gelu(self.gate_proj(x)))
        if self.config.attention in ("disentangled", "disentangled-other-rows"):
            # The output is normalised (Samuel et al. 2023, LTG-BERT, section 3).
            return self.o_norm(self.o_proj(mixed))
        return self.o_proj(mixed)

    def attend_to_earlier(
        self,
        x: Tensor,
        mask: Tensor,
        bias: Tensor | None,
        rotation: tuple[Tensor, Tensor] | None,
        earlier: Cache | None,
    ) -> Tensor:
        """Mix the values of an earlier layer: the last layers have queries alone (Brandon et al. 2024, section 3)."""
        query = self.q_proj(x)
        if self.config.qk_norm == "full":
            query = self.q_norm(query)
        query = query.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
        if self.config.qk_norm == "head":
            query = self.q_norm(query)
        if rotation is not None:
            query = rotate(query, rotation, self.config)
        assert earlier is not None
        key, value = earlier[f"key {self.source}"], earlier[f"value {self.source}"]
        return self.o_proj(self.attend(query, key, value, mask, bias).transpose(1, 2).flatten(-2))


class LatentAttention(Scores):
    """Keys and values are computed from one small vector a token, which is cached (DeepSeek-V2, section 2.1)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        head_width = config.qk_nope_head_dim + config.head_dim
        if config.q_lora_rank:
            self.q_a_proj = nn.Linear(config.hidden_size, config.q_lora_rank, bias=config.attention_bias)
            self.q_a_norm = build_norm(config, config.q_lora_rank, config.latent_norm_eps)
            self.q_proj = nn.Linear(config.q_lora_rank, config.num_attention_heads * head_width, bias=False)
        else:
            self.q_proj = nn.Linear(config.hidden_size, config.num_attention_heads * head_width, bias=False)
        key_width = config.kv_lora_rank + config.head_dim
        self.kv_a_proj = nn.Linear(config.hidden_size, key_width, bias=config.attention_bias)
        self.kv_a_norm = build_norm(config, config.kv_lora_rank, config.latent_norm_eps)
        value_width = config.num_attention_heads * config.v_head_dim
        kv_width = config.num_attention_heads * config.qk_nope_head_dim + value_width
        self.kv_b_proj = nn.Linear(config.kv_lora_rank, kv_width, bias=False)
        self.o_proj = nn.Linear(value_width, config.hidden_size, bias=config.attention_out_bias)

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        bias: Tensor | None = None,
        rotation: tuple[Tensor, Tensor] | None = None,
        cache: Cache | None = None,
        earlier: Cache | None = None,
    ) -> Tensor:
        """Mix the values of visible keys. *Shape:* x (batch, length, hidden_size), mask (..., 1, length, keys)."""
        config = self.config
        query = self.q_proj(self.q_a_norm(self.q_a_proj(x))) if config.q_lora_rank else self.q_proj(x)
        query = query.unflatten(-1, (config.num_attention_heads, -1)).transpose(1, 2)
        latent, key_rope = self.kv_a_proj(x).split([config.kv_lora_rank, config.head_dim], dim=-1)
        latent, key_rope = self.kv_a_norm(latent), key_rope[:, None]
        if rotation is not None:
            # A part of queries and keys is rotated; all heads share that of keys.
            query_nope, query_rope = query.split([config.qk_nope_head_dim, config.head_dim], dim=-1)
            query = torch.cat([query_nope, rotate(query_rope, rotation, config)], dim=-1)
            key_rope = rotate(key_rope, rotation, config)
        if cache is not None:
            # Latent vectors of earlier tokens and their rotated part, which generation does not compute again.
            if cache:
                latent = torch.cat([cache["latent"], latent], dim=1)
                key_rope = torch.cat([cache["key"], key_rope], dim=2)
            cache["latent"], cache["key"] = latent, key_rope
        kv = self.kv_b_proj(latent).unflatten(-1, (config.num_attention_heads, -1)).transpose(1, 2)
        key, value = kv.split([config.qk_nope_head_dim, config.v_head_dim], dim=-1)
        key = torch.cat([key, key_rope.expand(-1, config.num_attention_heads, -1, -1)], dim=-1)
        mixed = self.attend(query, key, value, mask, bias)
        return self.o_proj(mixed.transpose(1, 2).flatten(-2))


def build_attention(config: Config, layer_idx: int, is_cross: bool = False, extra_bias: bool = False) -> nn.Module:
    """The attention that the configuration names."""
    if config.attention == "latent":
        return LatentAttention(config)
    if config.attention in (
        *("multi-head", "differential", "disentangled", "disentangled-gated", "disentangled-other-rows", "exclusive"),
        *("gated", "kv-sharing", "masked-rows-uniform", "normalized", "sinks", "value-embeddings", "value-residual"),
    ):
        return Attention(config, layer_idx, is_cross, extra_bias)
    raise NoPlainForm("attention")
