"""Llama and what is written like it: RMSNorm, rotary positions, a gated feed-forward network, grouped queries."""

from __future__ import annotations

from collections.abc import Mapping

from zoo.models import ZooConfig

from ..declared import Field, Keys, same
from ..decoders import CLASSIFIER_DROPOUT, HEAD_DIM, ONE_WINDOW, ROPE, WINDOWS_BY_LAYER, DecoderFormat

SIZES: Mapping[str, str | Field] = {
    **same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    **same("intermediate_size", "hidden_act", "max_position_embeddings", "initializer_range", "attention_dropout"),
    **same("tie_word_embeddings"),
    "head_dim": HEAD_DIM,
}
ATTENTION: Keys = {f"self_attn.{p}_proj": f"self_attn.{p}_proj" for p in "qkvo"}
QK_NORMS: Keys = {f"self_attn.{p}_norm": f"self_attn.{p}_norm" for p in "qk"}
GATED: Keys = {f"mlp.{p}_proj": f"mlp.{p}_proj" for p in ("gate", "up", "down")}
PRE_NORMS: Keys = {"self_attn_residual.norm_in": "input_layernorm", "mlp_residual.norm_in": "post_attention_layernorm"}
NO_BIASES = {"attention_bias": False, "attention_out_bias": False, "mlp_bias": False}


def any_attention_bias(config: ZooConfig) -> bool:
    """Whether any of the four projections has a bias."""
    return bool(config.attention_bias or config.attention_out_bias)


ATTENTION_BIAS: Mapping[str, str | Field] = {"attention_bias": Field("attention_bias", has=any_attention_bias)}
"""One setting for the biases of all four projections."""

SAME_OUT_BIAS = {"attention_out_bias": lambda config: config.attention_bias}
SAME_BIASES = {**SAME_OUT_BIAS, "mlp_bias": lambda config: config.attention_bias}


class LlamaLike(DecoderFormat):
    """Base of the family; differences are in a table of each class."""

    variant = "llama-style"
    fields = {
        **SIZES,
        "layer_norm_eps": "rms_norm_eps",
        "rope_parameters": ROPE,
        "classifier_dropout": CLASSIFIER_DROPOUT,
    }
    always = {"norm": "rmsnorm", "position": "rotary", "feed_forward": "gated", **NO_BIASES}
    body = {"embed_tokens": "embed_tokens", "norm": "norm"}
    layer = {**ATTENTION, **GATED, **PRE_NORMS}
    reasons = {
        "lm_head_bias": "its output projection has no bias",
        "feed_forward": "its feed-forward network is gated",
        "norm": "it has RMSNorm",
    }


class Llama(LlamaLike):
    """Llama (Touvron et al. 2023)."""

    name = "llama"
    rank = 60
    model_types = ("llama", "internlm3", "iquestcoder")
    fields = {**LlamaLike.fields, **ATTENTION_BIAS, **same("mlp_bias")}
    always = {**LlamaLike.always, **SAME_OUT_BIAS}


class Mistral(LlamaLike):
    """Mistral (Jiang et al. 2023): one sliding window for all layers, for any `layer_types`."""

    name = "mistral"
    rank = 70
    fields = {**LlamaLike.fields, **ONE_WINDOW}


class Qwen2(LlamaLike):
    """Qwen2 (Yang et al. 2024): biases on queries, keys and values, windows layer by layer."""

    name = "qwen2"
    rank = 80
    fields = {**LlamaLike.fields, **WINDOWS_BY_LAYER}
    follows = {"use_sliding_window": lambda config: config.sliding_window is not None}
    always = {**LlamaLike.always, "attention_bias": True}


class Qwen3(LlamaLike):
    """Qwen3 (Yang et al. 2025): queries and keys normalised head by head."""

    name = "qwen3"
    rank = 90
    variant = "qwen3-style"
    fields = {**Qwen2.fields, **ATTENTION_BIAS}
    follows = Qwen2.follows
    always = {**LlamaLike.always, **SAME_OUT_BIAS, "qk_norm": "head"}
    layer = {**LlamaLike.layer, **QK_NORMS}
