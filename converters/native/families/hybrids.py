"""Decoders in which most layers have no attention: Qwen3-Next, Qwen3.5, LFM2 and Kimi Linear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.models import GatedDeltaNet, KimiDeltaAttention, ShortConvolution, ZooConfig
from zoo.models.mixers.delta_net import kimi_sizes, sizes
from zoo.models.parts import option

from ...key_map import KeyMap, Keys, pairs
from ...symmetries.base import State
from ...transforms import Transform, each, join, split_rows
from ..common import norms, without
from ..declared import Field, same
from ..decoders import PARTIAL_ROPE, TYPES_OF_LAYERS, DecoderFormat, part_of_heads
from .deepseek import DeepseekV3
from .experts import DENSE_FIRST, EXPERT_SIZES, EXPERTS, SHARED_EXPERT, SHARED_SIZE, ExpertsLike, setting
from .llama import ATTENTION, ATTENTION_BIAS, GATED, PRE_NORMS, QK_LAYERNORMS, QK_NORMS, LlamaLike

DELTA_SIZES = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")


def by_layer(kind: str, mixer: str) -> dict[str, Field]:
    """Layers with attention, in a class that may have it in all layers."""
    return {
        "mixer": Field(
            "layer_types",
            lambda native: mixer if kind in native.layer_types else "attention",
            lambda config: config.types_of_layers(),
            has=mixer,
        ),
        "layer_types": TYPES_OF_LAYERS,
    }


MIXER_OPTIONS = {name for part in (GatedDeltaNet, KimiDeltaAttention, ShortConvolution) for name in part.options}


class Hybrid(DecoderFormat):
    """A class with such layers, without the settings of their mixer where it has attention in all layers."""

    def read_config(self, native: Any, task: str) -> dict[str, Any]:
        read = super().read_config(native, task)
        return without(read, *MIXER_OPTIONS) if read["mixer"] == "attention" else read


def size(index: int) -> Callable[[ZooConfig], int]:
    return lambda config: sizes(config)[index]


def mixed_and_gates(config: ZooConfig) -> Transform:
    """Queries, keys and values in one projection and gates in another, which the class has by key head in one."""
    key_heads, value_heads, key_dim, value_dim = sizes(config)
    values = value_heads // key_heads * value_dim
    apart = split_rows((key_dim, key_dim, values, values), key_heads)
    widths = (key_heads * key_dim, key_heads * key_dim, key_heads * values)

    def cut(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        *mixed, gates = apart.forward(tensors)
        return torch.cat(mixed), gates

    return Transform("split", cut, lambda pair: apart.backward((*pair[0].split(widths), pair[1])))


def joined(*names: str) -> tuple[str, ...]:
    return tuple(f"self_attn.{name}.weight" for name in names)


DELTA_MODULES = {
    **{f"self_attn.{name}.weight": f"linear_attn.{name}.weight" for name in ("conv1d", "norm", "out_proj")},
    "self_attn.dt_bias": "linear_attn.dt_bias",
    "self_attn.A_log": "linear_attn.A_log",
}
DELTA: Keys = {
    joined("in_proj_qkv", "in_proj_z"): ("linear_attn.in_proj_qkvz.weight", mixed_and_gates),
    joined("in_proj_b", "in_proj_a"): (
        "linear_attn.in_proj_ba.weight",  # by key head
        lambda config: split_rows((sizes(config)[1] // sizes(config)[0],) * 2, sizes(config)[0]),
    ),
    **DELTA_MODULES,
}


class Qwen3Next(Hybrid, ExpertsLike, name="qwen3_next", variant="qwen3-next-style"):
    """Qwen3-Next (Qwen team 2025), without the modules that predict further tokens."""

    fields = {
        **without(LlamaLike.fields, "hidden_act"),
        **ATTENTION_BIAS,
        **EXPERT_SIZES,
        **SHARED_SIZE,
        **by_layer("linear_attention", "gated-delta-net"),
        **{name: Field(name, write=size(index)) for index, name in enumerate(DELTA_SIZES)},
        "linear_conv_kernel_dim": setting("linear_conv_kernel_dim", part=GatedDeltaNet),
        "rope_parameters": PARTIAL_ROPE,
    }
    always = {
        **ExpertsLike.always,
        "norm": "zero-centered-rmsnorm",
        "attention": "gated",
        "qk_norm": "head",
        "feed_forward": "moe-shared",
        "hidden_act": "silu",
    }
    only = {"hidden_act": "silu", "decoder_sparse_step": 1, "mlp_only_layers": []}
    layer = {
        **without(ATTENTION, "self_attn.q_proj"),
        ("self_attn.q_proj", "self_attn.gate_proj"): (
            "self_attn.q_proj",  # head by head
            lambda config: split_rows((1, 1), config.num_attention_heads),
        ),
        **QK_NORMS,
        **DELTA,
        **EXPERTS,
        **SHARED_EXPERT,
        **PRE_NORMS,
    }
    reasons = {
        **ExpertsLike.reasons,
        "feed_forward": "its feed-forward network is a mixture of experts next to a gated one (moe-shared)",
        "attention": "its attention is gated",
        "mixer": "its layers without attention have the gated delta rule",
    }

    def obstacles(self, config: ZooConfig, state: State, task: str) -> list[str]:
        twice = config.mixer == "gated-delta-net" and option(config, GatedDeltaNet, "linear_allow_neg_eigval")
        found = ["linear_allow_neg_eigval=True, here it is False"] if twice else []
        return super().obstacles(config, state, task) + found


class Qwen35Text(Qwen3Next, name="qwen3_5_text"):
    """The language model of Qwen3.5 (Qwen team 2026), without experts or the modules that predict further tokens."""

    fields = {
        **without(Qwen3Next.fields, *EXPERT_SIZES, *SHARED_SIZE),
        "rope_parameters": Field(  # it has an axis for time and two for pictures: for text, all are equal
            "rope_parameters",
            lambda native: without(part_of_heads(native), "mrope_section", "mrope_interleaved"),
            PARTIAL_ROPE.write,
        ),
    }
    always = {**Qwen3Next.always, "feed_forward": "gated"}
    only = {"hidden_act": "silu"}
    only_options = {}
    layer = {
        **without(Qwen3Next.layer, *EXPERTS, *SHARED_EXPERT, *(key for key in DELTA if isinstance(key, tuple))),
        **{f"self_attn.in_proj_{name}.weight": f"linear_attn.in_proj_{name}.weight" for name in ("qkv", *"zba")},
        **GATED,
    }
    reasons = {**Qwen3Next.reasons, "feed_forward": LlamaLike.reasons["feed_forward"]}


def feed_forward_size(native: Any) -> int:
    """Inner width of LFM2's feed-forward network, which its configuration holds or describes."""
    width: int = native.intermediate_size
    if not native.block_auto_adjust_ff_dim:
        return width
    width = 2 * width // 3
    if native.block_ffn_dim_multiplier is not None:
        multiple = native.block_multiple_of
        width = -(-int(native.block_ffn_dim_multiplier * width) // multiple) * multiple
    return width


class Lfm2(Hybrid, LlamaLike, name="lfm2", variant="lfm2-style"):
    """LFM2 (Liquid AI 2025), the dense models."""

    fields = {
        **without(LlamaLike.fields, "hidden_act", "attention_dropout", "intermediate_size"),
        **by_layer("conv", "short-conv"),
        **{name: setting(name, part=ShortConvolution) for name in ShortConvolution.options},
        "intermediate_size": Field("intermediate_size", feed_forward_size),
        "layer_norm_eps": "norm_eps",
    }
    follows = {
        "block_auto_adjust_ff_dim": lambda config: False,
        **dict.fromkeys(("block_dim", "conv_dim"), lambda config: config.hidden_size),  # read by vLLM
    }
    always = {**LlamaLike.always, "qk_norm": "head", "hidden_act": "silu"}
    body = {"embed_tokens": "embed_tokens", "norm": "embedding_norm"}
    layer = {
        **without(ATTENTION, "self_attn.o_proj"),
        "self_attn.o_proj": "self_attn.out_proj",
        **QK_LAYERNORMS,
        **{f"self_attn.{p}": f"conv.{p}" for p in ("in_proj", "conv", "out_proj")},
        **{f"mlp.{p}_proj": f"feed_forward.{w}" for p, w in (("gate", "w1"), ("down", "w2"), ("up", "w3"))},
        **norms("operator_norm", "ffn_norm"),
    }
    reasons = {**LlamaLike.reasons, "mixer": "its layers without attention have a short convolution"}

    def differences(self, native: Any, read: Mapping[str, Any], config: ZooConfig) -> list[str]:
        reading = "by the biases of its projections the class reads padding on the left, the zoo's model does not"
        return [f"conv_bias=True: {reading}"] * native.conv_bias + super().differences(native, read, config)


BY_HEAD = each("flatten", lambda rates: rates.flatten(), lambda rates: rates[None, None, :, None])
"""From one rate a head, *Shape:* (1, 1, num_heads, 1), to a vector of them."""

KIMI_DELTA: Keys = {
    "self_attn.A_log": ("self_attn.forget_gate.A_log", BY_HEAD),
    "self_attn.in_proj_qkv.weight": (tuple(f"self_attn.{p}_proj.weight" for p in "qkv"), join(3)),
    "self_attn.in_proj_b.weight": "self_attn.b_proj.weight",
    **{f"self_attn.{p}": f"self_attn.forget_gate.{p}" for p in ("f_a_proj.weight", "f_b_proj.weight", "dt_bias")},
    **same(*joined("conv1d", "g_a_proj", "g_b_proj")),
    "self_attn.norm.weight": "self_attn.o_norm.weight",
    "self_attn.out_proj.weight": "self_attn.o_proj.weight",
}

FIXED_IN_KIMI = {"tie_word_embeddings": False, "hidden_act": "silu"}  # With other activations it convolves by them too


class KimiLinear(Hybrid, DeepseekV3, name="kimi_linear", variant="kimi-linear-style"):
    """Kimi Linear (Kimi Team 2025)."""

    fields = {
        **without(DeepseekV3.fields, "rope_parameters", "position", "attention_scale", *FIXED_IN_KIMI),
        **by_layer("linear_attention", "kimi-delta-attention"),
        "linear_num_heads": Field("linear_num_heads", write=lambda config: kimi_sizes(config)[0]),
        "linear_head_dim": Field("linear_head_dim", write=lambda config: kimi_sizes(config)[1]),
        "linear_conv_kernel_dim": setting("linear_conv_kernel_dim", part=KimiDeltaAttention),
        "num_experts": setting("num_experts", "num_local_experts"),
        **DENSE_FIRST,
    }
    always = {**DeepseekV3.always, "position": "none", **FIXED_IN_KIMI}
    only = FIXED_IN_KIMI
    reasons = {
        **DeepseekV3.reasons,
        "mixer": "its layers without attention have Kimi delta attention",
        "position": "it has no positions",
    }

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """Lay the keys side by side, layer by layer: the two kinds share names."""
        attending = self.keys_of_layer(config)
        rest = {zoo: native for zoo, native in attending.items() if not zoo.startswith("self_attn.")}
        rows = [*pairs(self.body, "model.", self.prefix, config), *pairs(self.heads[task], "", "", config)]
        for number, kind in enumerate(config.types_of_layers()):
            keys = {**KIMI_DELTA, **rest} if kind == KimiDeltaAttention.layer_type else attending
            rows += pairs(keys, f"model.layers.{number}.", f"{self.prefix}layers.{number}.", config)
        return KeyMap.of(*rows, owner=self.name)
