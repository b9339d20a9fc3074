"""Falcon: sublayers in parallel or not, with one, several or as many key heads as query heads."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig

from ...symmetries.base import State
from ..common import share_norms
from ..declared import Field, native_format, same
from ..decoders import GPT2_HEADS, PROJECTIONS, ROPE, heads_by_group
from .gpt_neox import FEED_FORWARD, ParallelOrNot
from .llama import SAME_BIASES

READERS = ("self_attention.query_key_value", "mlp.dense_h_to_4h")


def key_heads(native: Any) -> int:
    """The number of key and value heads, by three settings."""
    if native.new_decoder_architecture or not native.multi_query:
        return int(native.num_kv_heads)
    return 1


def is_grouped(config: ZooConfig) -> bool:
    """Whether it has several key heads, and fewer than query heads: only the new architecture supports that."""
    return bool(1 < config.num_key_value_heads < config.num_attention_heads)


@native_format
class Falcon(ParallelOrNot):
    """Falcon with rotary positions (Almazrouei et al. 2023)."""

    name = "falcon"
    variant = "falcon-style"
    prefix = "transformer."
    fields = {
        **same("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
        **same("initializer_range", "attention_dropout", "tie_word_embeddings"),
        "num_key_value_heads": Field("num_kv_heads", key_heads),
        "intermediate_size": "ffn_hidden_size",
        "hidden_act": "activation",
        "layer_norm_eps": "layer_norm_epsilon",
        "rope_parameters": ROPE,
        "dropout": "hidden_dropout",
        "parallel_residual": Field(
            "parallel_attn",
            lambda native: native.parallel_attn or native.new_decoder_architecture,
            has=lambda config: True if is_grouped(config) else config.parallel_residual,
        ),
        "attention_bias": Field(
            "bias", has=lambda config: config.attention_bias or config.attention_out_bias or config.mlp_bias
        ),
    }
    always = {**SAME_BIASES, "position": "rotary"}
    only = {"alibi": False}
    follows = {
        "new_decoder_architecture": is_grouped,
        "multi_query": lambda config: config.num_key_value_heads == 1,
        "num_ln_in_parallel_attn": lambda config: 1 if is_grouped(config) else None,
    }
    layers = "h.{n}"
    body = {"embed_tokens": "word_embeddings", "norm": "ln_f"}
    layer = {
        PROJECTIONS: ("self_attention.query_key_value", heads_by_group),
        "self_attn.o_proj": "self_attention.dense",
        **FEED_FORWARD,
    }
    heads = GPT2_HEADS

    def read_weights(self, native: Any, state: State, task: str) -> State:
        """Make one norm of two in the new architecture."""
        state = super().read_weights(native, state, task)
        layers = [f"transformer.h.{layer}." for layer in range(native.num_hidden_layers)]
        if f"{layers[0]}ln_mlp.weight" not in state:
            return state
        state = share_norms(state, layers, ("ln_attn", "ln_mlp"), READERS, self.name)
        state = {name.replace(".ln_attn.", ".input_layernorm."): value for name, value in state.items()}
        for layer in layers:
            if f"{layer}mlp.dense_h_to_4h.bias" in state:
                output = state[f"{layer}mlp.dense_4h_to_h.weight"]
                state.setdefault(f"{layer}mlp.dense_4h_to_h.bias", output.new_zeros(output.shape[0]))
        return state

    def infer(self, native: Any, state: State, settings: dict[str, Any]) -> State:
        """Folded norms bring biases along."""
        biases = {"attention_bias": "query_key_value", "attention_out_bias": "dense", "mlp_bias": "dense_4h_to_h"}
        for field, module in biases.items():
            settings[field] = any(name.endswith(f".{module}.bias") for name in state)
        return state
