"""StableLM, StarCoder2 and Jais 2: Llama's layout with layer norms."""

from __future__ import annotations

from typing import Any

from zoo.models import ZooConfig

from ...symmetries.base import State, change
from ...transforms import split_groups
from ..base import native_format
from ..common import changed_exactly
from ..declared import choice, same, without
from ..decoders import ONE_WINDOW, PARTIAL_ROPE, PROJECTIONS, ROPE, DecoderFormat
from .gpt_neox import FEED_FORWARD, ParallelOrNot
from .llama import ATTENTION, ATTENTION_BIAS, GATED, NO_BIASES, PRE_NORMS, SAME_BIASES, SAME_OUT_BIAS, SIZES

STORED_NORMS = r"norm\.weight$"


class NormedLike(DecoderFormat):
    """Base of these classes."""

    variant = "pre-norm"
    fields = {**SIZES, "layer_norm_eps": "layer_norm_eps", "rope_parameters": ROPE}
    always = {"position": "rotary"}
    body = {"embed_tokens": "embed_tokens", "norm": "norm"}
    layer = {**ATTENTION, **PRE_NORMS, **without(GATED, "mlp.gate_proj")}


@native_format
class StableLm(ParallelOrNot, NormedLike):
    """StableLM 2 (Bellagente et al. 2024)."""

    name = "stablelm"
    fields = {
        **NormedLike.fields,
        "rope_parameters": PARTIAL_ROPE,
        "attention_bias": "use_qkv_bias",
        "parallel_residual": "use_parallel_residual",
        "dropout": "hidden_dropout",
    }
    always = {**NO_BIASES, "position": "rotary", "feed_forward": "gated"}
    only = {"qk_layernorm": False}
    layer = {**ATTENTION, **GATED}


@native_format
class Starcoder2(NormedLike):
    """StarCoder 2 (Lozhkov et al. 2024)."""

    name = "starcoder2"
    rank = 200
    fields = {
        **NormedLike.fields,
        **ONE_WINDOW,
        "layer_norm_eps": "norm_epsilon",
        "attention_bias": "use_bias",
        "dropout": "residual_dropout",
    }
    always = {**SAME_BIASES, "position": "rotary"}
    layer = {**ATTENTION, **PRE_NORMS, "mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}


@native_format
class Jais2(NormedLike):
    """Jais 2 (Inception, MBZUAI and Cerebras 2025)."""

    name = "jais2"
    fields = {**NormedLike.fields, **ATTENTION_BIAS, **same("mlp_bias")}
    always = {**SAME_OUT_BIAS, "position": "rotary"}


@native_format
class Nemotron(NormedLike):
    """Nemotron-4 and Minitron (Parmar et al. 2024): weights of norms are stored as differences from one."""

    name = "nemotron"
    fields = {
        **NormedLike.fields,
        **ATTENTION_BIAS,
        **same("mlp_bias"),
        "layer_norm_eps": "norm_eps",
        "rope_parameters": PARTIAL_ROPE,
    }
    always = {**SAME_OUT_BIAS, "position": "rotary"}

    def read_weights(self, native: Any, state: State, task: str) -> State:
        """Add the one. Arguments as in the base class."""
        state = super().read_weights(native, state, task)
        return changed_exactly(state, lambda state: change(state, STORED_NORMS, lambda weight: weight + 1), self.name)

    def write_weights(self, config: ZooConfig, state: State, task: str) -> State:
        """Subtract it. Arguments as in the base class."""
        state = super().write_weights(config, state, task)
        return change(state, STORED_NORMS, lambda weight: weight - 1)


@native_format
class Persimmon(NormedLike):
    """Persimmon (Adept 2023): joined projections, biases everywhere."""

    name = "persimmon"
    fields = {
        **without(NormedLike.fields, "num_key_value_heads", "head_dim"),
        "rope_parameters": PARTIAL_ROPE,
        "dropout": "hidden_dropout",
        "qk_norm": choice("qk_layernorm", "qk_norm", {None: False, "head": True}),
    }
    body = {"embed_tokens": "embed_tokens", "norm": "final_layernorm"}
    layer = {
        PROJECTIONS: ("self_attn.query_key_value", lambda config: split_groups(config.num_attention_heads, 1)),
        "self_attn.o_proj": "self_attn.dense",
        **{f"self_attn.{p}_norm": f"self_attn.{p}_layernorm" for p in "qk"},
        **PRE_NORMS,
        **FEED_FORWARD,
    }
