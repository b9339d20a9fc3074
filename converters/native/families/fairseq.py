"""XGLM, BioGPT and OPT: fairseq's decoders."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig
from zoo.registry import Task

from ...errors import NoCounterpartError
from ...key_map import Keys
from ...symmetries.base import State
from ...transforms import skip_rows
from ..common import (
    COUNTS_TOKENS,
    FIXED_EPS,
    OFFSET,
    TABLE_POSITIONS,
    decoder_obstacles,
    fairseq_layer,
    fairseq_table,
    table_obstacles,
    without,
    without_classifier_bias,
)
from ..declared import ALL_BIASES, Field, choice, one_bias, same
from ..decoders import GPT2_HEADS, DecoderFormat

LAYER = fairseq_layer("norm_in")


class BioGpt(DecoderFormat, name="biogpt"):
    """BioGPT (Luo et al. 2022)."""

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


class Xglm(DecoderFormat, name="xglm"):
    """XGLM (Lin et al. 2021): fairseq's sinusoidal positions, which are read as a table."""

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
    untrained = "tables of positions"
    computes_in_double = False
    body = {"embed_tokens": "embed_tokens", "position.weight": "embed_positions.weight", "norm": "layer_norm"}
    layer = LAYER

    def read_weights(self, native: Any, state: State, task: str) -> State:
        rows = fairseq_table(native.max_position_embeddings, native.d_model, OFFSET, native.pad_token_id)
        like = state["model.embed_tokens.weight"]
        return {**super().read_weights(native, state, task), "model.embed_positions.weight": rows.to(like)}

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        return without(super().write_weights(config, state, task), "model.embed_positions.weight")

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        return super().obstacles(config, state, task) + table_obstacles(state, OFFSET, config.pad_token_id)


class Opt(DecoderFormat, name="opt", rank=160):
    """OPT (Zhang et al. 2022); its body with `is_causal=false` is an encoder."""

    variant = "gpt2-style"
    fields = {
        **same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
        **same("dropout", "attention_dropout", "tie_word_embeddings"),
        "intermediate_size": "ffn_dim",
        "hidden_act": "activation_function",
        "initializer_range": "init_std",
        "norm_placement": choice("do_layer_norm_before", "norm_placement", {"pre": True, "post": False}),
        "final_norm": Field(
            "_remove_final_layer_norm",
            lambda native: native.do_layer_norm_before and not native._remove_final_layer_norm,
            lambda config: config.norm_placement == "pre" and not config.final_norm,
            has=lambda config: (True, False) if config.norm_placement == "pre" else False,
        ),
        **one_bias("enable_bias", ALL_BIASES),
    }
    always = {"position": TABLE_POSITIONS, "layer_norm_eps": FIXED_EPS}
    only = {"layer_norm_elementwise_affine": True}
    follows = {"word_embed_proj_dim": lambda config: config.hidden_size}
    layers = "decoder.layers.{n}"
    body = {
        "embed_tokens": "decoder.embed_tokens",
        "position.weight": ("decoder.embed_positions.weight", skip_rows(OFFSET)),
        "norm": "decoder.final_layer_norm",
    }

    def keys_of_layer(self, config: ZooConfig) -> Keys:
        return fairseq_layer("norm_in" if config.norm_placement == "pre" else "norm_out")

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        if native.word_embed_proj_dim != native.hidden_size:
            lacks = f"embeddings of word_embed_proj_dim={native.word_embed_proj_dim} are projected to hidden_size="
            raise NoCounterpartError(self.name, [f"{lacks}{native.hidden_size} (as in opt-350m), which no part does"])
        encoder = {} if getattr(native, "is_causal", True) else {"is_decoder": False}
        return {**super().read_config(native, task), "position": "learned-unpadded", **encoder}

    def write_config(self, config: ZooConfig, task: str) -> dict[str, Any]:
        return super().write_config(config, task) | ({} if config.is_decoder else {"is_causal": False})

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        if config.stack == "encoder" and task == Task.FEATURE_EXTRACTION:
            return []
        return decoder_obstacles(config, state, task)

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        last = "" if config.final_norm else f"layers.{config.num_hidden_layers - 1}."
        return without_classifier_bias(state, f"model.decoder.{last}final_layer_norm.bias")

    def notes(self, config: ZooConfig, task: str) -> list[str]:
        found = super().notes(config, task)
        return found if config.position == "learned-unpadded" else [*found, COUNTS_TOKENS]
