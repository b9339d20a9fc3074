"""XGLM and BioGPT: fairseq's decoders."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig

from ...symmetries.base import State
from ...transforms import skip_rows
from ..common import FIXED_EPS, OFFSET, drop, fairseq_layer, fairseq_table, table_obstacles
from ..declared import native_format, same
from ..decoders import GPT2_HEADS, DecoderFormat

LAYER = fairseq_layer("norm_in")


@native_format
class BioGpt(DecoderFormat):
    """BioGPT (Luo et al. 2022)."""

    name = "biogpt"
    variant = "gpt2-style"
    prefix = "biogpt."
    fields = {
        **same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        **same("hidden_act", "max_position_embeddings", "initializer_range", "activation_dropout", "scale_embedding"),
        **same("tie_word_embeddings"),
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
    }
    always = {"layer_norm_eps": FIXED_EPS, "position": "learned"}
    body = {
        "embed_tokens": "embed_tokens",
        "position.weight": ("embed_positions.weight", skip_rows(OFFSET)),
        "norm": "layer_norm",
    }
    layer = LAYER
    heads = {**GPT2_HEADS, "causal-lm": {"lm_head": "output_projection"}}


@native_format
class Xglm(DecoderFormat):
    """XGLM (Lin et al. 2021): fairseq's sinusoidal positions, which are read as a table."""

    name = "xglm"
    variant = "gpt2-style"
    fields = {
        **same("vocab_size", "max_position_embeddings", "dropout", "attention_dropout", "activation_dropout"),
        **same("scale_embedding", "tie_word_embeddings"),
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "attention_heads",
        "intermediate_size": "ffn_dim",
        "hidden_act": "activation_function",
        "initializer_range": "init_std",
    }
    always = {"layer_norm_eps": FIXED_EPS, "position": "learned"}
    only = {"add_cross_attention": False}
    computes_in_double = False
    body = {"embed_tokens": "embed_tokens", "position.weight": "embed_positions.weight", "norm": "layer_norm"}
    layer = LAYER

    def read_weights(self, native: Any, state: State, task: str) -> State:
        rows = fairseq_table(native.max_position_embeddings, native.d_model, OFFSET, native.pad_token_id)
        like = state["model.embed_tokens.weight"]
        return {**super().read_weights(native, state, task), "model.embed_positions.weight": rows.to(like)}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        return drop(super().write_weights(config, state, task), "model.embed_positions.weight")

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        return super().obstacles(config, state, task) + table_obstacles(state, OFFSET, config.pad_token_id)
