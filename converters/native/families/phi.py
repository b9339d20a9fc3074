"""Phi and Phi-3: one parallel norm with biases everywhere, and Llama with joined projections."""

from __future__ import annotations

from ...transforms import split_rows
from ..base import native_format
from ..declared import choice
from ..decoders import ONE_WINDOW, PARTIAL_ROPE, PROJECTIONS, DecoderFormat
from .llama import PRE_NORMS, SIZES, LlamaLike

JOINED_GATE = {
    ("mlp.gate_proj", "mlp.up_proj"): ("mlp.gate_up_proj", split_rows((1, 1))),
    "mlp.down_proj": "mlp.down_proj",
}


@native_format
class Phi(DecoderFormat):
    """Phi-1 to Phi-2 (Gunasekar et al. 2023)."""

    name = "phi"
    variant = "gptj-style"
    fields = {
        **SIZES,
        "layer_norm_eps": "layer_norm_eps",
        "rope_parameters": PARTIAL_ROPE,
        "dropout": "resid_pdrop",
        "qk_norm": choice("qk_layernorm", "qk_norm", {None: False, "head": True}),
    }
    always = {"position": "rotary", "parallel_residual": True, "lm_head_bias": True}
    body = {"embed_tokens": "embed_tokens", "norm": "final_layernorm"}
    layer = {
        "residual.norm_in": "input_layernorm",
        **{f"self_attn.{p}_proj": f"self_attn.{p}_proj" for p in "qkv"},
        "self_attn.o_proj": "self_attn.dense",
        **{f"self_attn.{p}_norm": f"self_attn.{p}_layernorm" for p in "qk"},
        "mlp.up_proj": "mlp.fc1",
        "mlp.down_proj": "mlp.fc2",
    }


@native_format
class Phi3(LlamaLike):
    """Phi-3 and Phi-4 (Abdin et al. 2024)."""

    name = "phi3"
    fields = {**LlamaLike.fields, **ONE_WINDOW, "rope_parameters": PARTIAL_ROPE, "dropout": "resid_pdrop"}
    layer = {
        PROJECTIONS: (
            "self_attn.qkv_proj",
            lambda config: split_rows((config.num_attention_heads, *[config.num_key_value_heads] * 2)),
        ),
        "self_attn.o_proj": "self_attn.o_proj",
        **JOINED_GATE,
        **PRE_NORMS,
    }
