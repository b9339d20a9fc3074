"""Kimi Linear: Kimi delta attention in most layers, latent attention without positions in the others."""

from __future__ import annotations

from typing import Any

from zoo.models import KimiDeltaAttention, ZooConfig
from zoo.models.mixers.kimi_delta import kimi_sizes

from ...key_map import KeyMap
from ...transforms import each, join
from ..declared import Field, Keys, native_format, pairs, table, without
from .deepseek import DeepseekV3
from .experts import DENSE_FIRST, setting
from .hybrids import by_layer

DELTA: Keys = {
    "self_attn.in_proj_qkv.weight": (tuple(f"self_attn.{p}_proj.weight" for p in "qkv"), join(3)),
    "self_attn.in_proj_b.weight": "self_attn.b_proj.weight",
    "self_attn.f_a_proj.weight": "self_attn.forget_gate.f_a_proj.weight",
    "self_attn.f_b_proj.weight": "self_attn.forget_gate.f_b_proj.weight",
    "self_attn.dt_bias": "self_attn.forget_gate.dt_bias",
    "self_attn.conv1d.weight": "self_attn.conv1d.weight",
    "self_attn.g_a_proj.weight": "self_attn.g_a_proj.weight",
    "self_attn.g_b_proj.weight": "self_attn.g_b_proj.weight",
    "self_attn.norm.weight": "self_attn.o_norm.weight",
    "self_attn.out_proj.weight": "self_attn.o_proj.weight",
}

BY_HEAD = each("flatten", lambda rates: rates.flatten(), lambda rates: rates[None, None, :, None])
"""From one rate a head, *Shape:* (1, 1, num_heads, 1), to a vector of them."""


@native_format
class KimiLinear(DeepseekV3):
    """Kimi Linear (Kimi Team 2025)."""

    name = "kimi_linear"
    variant = "kimi-linear-style"
    fields = {
        **without(DeepseekV3.fields, "rope_parameters", "position", "attention_scale", "tie_word_embeddings"),
        **by_layer("linear_attention", "kimi-delta-attention"),
        "linear_num_heads": Field("linear_num_heads", write=lambda config: kimi_sizes(config)[0]),
        "linear_head_dim": Field("linear_head_dim", write=lambda config: kimi_sizes(config)[1]),
        "linear_conv_kernel_dim": setting("linear_conv_kernel_dim", part=KimiDeltaAttention),
        "num_experts": setting("num_experts", "num_local_experts"),
        **DENSE_FIRST,
    }
    always = {**DeepseekV3.always, "position": "none", "tie_word_embeddings": False}
    only = {"tie_word_embeddings": False}
    reasons = {
        **DeepseekV3.reasons,
        "mixer": "its layers without attention have Kimi delta attention",
        "position": "it has no positions",
    }

    def key_map(self, config: ZooConfig, task: str) -> KeyMap:
        """Lay the keys side by side, layer by layer: the two kinds share names."""
        attending = self.keys_of_layer(config)
        rest = {zoo: native for zoo, native in attending.items() if not zoo.startswith("self_attn.")}
        rows: list[Any] = [*pairs(self.body, "model.", self.prefix, config), *pairs(self.heads[task], "", "", config)]
        for number, kind in enumerate(config.types_of_layers()):
            ours, theirs = f"model.layers.{number}.", f"{self.prefix}layers.{number}."
            if kind == KimiDeltaAttention.layer_type:
                rows += pairs({**DELTA, **rest}, ours, theirs, config)
                rows.append((f"{theirs}self_attn.forget_gate.A_log", f"{ours}self_attn.A_log", BY_HEAD))
            else:
                rows += pairs(attending, ours, theirs, config)
        return table(*rows, owner=self.name)
