"""Gemma and Gemma 2: zero-centred norms and scaled embeddings, and norms on both sides of the sublayers."""

from __future__ import annotations

from zoo.models.attention import attention_scaling

from ..base import native_format
from ..declared import Field, same
from ..decoders import ROPE_BY_LAYER, WINDOWS_BY_LAYER
from .llama import ATTENTION, ATTENTION_BIAS, GATED, PRE_NORMS, QK_NORMS, SAME_OUT_BIAS, LlamaLike

SANDWICH_NORMS = {
    "self_attn_residual.norm_in": "input_layernorm",
    "self_attn_residual.norm_branch": "post_attention_layernorm",
    "mlp_residual.norm_in": "pre_feedforward_layernorm",
    "mlp_residual.norm_branch": "post_feedforward_layernorm",
}


def is_whole(number: float) -> bool:
    """Whether a number is a whole one, but for rounding."""
    return abs(number - round(number)) < 1e-9 * number


CAPPED = {
    **LlamaLike.fields,
    **ATTENTION_BIAS,
    **WINDOWS_BY_LAYER,
    **same("attn_logit_softcapping", "final_logit_softcapping"),
    "hidden_act": "hidden_activation",
    "attention_scale": Field(
        "query_pre_attn_scalar",
        lambda native: native.query_pre_attn_scalar**0.5,
        lambda config: round(attention_scaling(config) ** -2),
        has=lambda config: config.attention_scale if is_whole(attention_scaling(config) ** -2) else "head-dim",
    ),
}


@native_format
class Gemma(LlamaLike):
    """Gemma (Gemma team 2024)."""

    name = "gemma"
    fields = {**LlamaLike.fields, **ATTENTION_BIAS}
    always = {**LlamaLike.always, **SAME_OUT_BIAS, "norm": "zero-centered-rmsnorm", "scale_embedding": True}
    only = {"use_bidirectional_attention": None}


@native_format
class Gemma2(Gemma):
    """Gemma 2 (Gemma team 2024)."""

    name = "gemma2"
    variant = "gemma2-style"
    fields = CAPPED
    always = {**Gemma.always, "norm_placement": "sandwich"}
    layer = {**ATTENTION, **GATED, **SANDWICH_NORMS}


@native_format
class VaultGemma(Gemma):
    """VaultGemma (Sinha et al. 2025): Gemma 2 without the norms after the sublayers."""

    name = "vaultgemma"
    fields = CAPPED
    layer = {
        **LlamaLike.layer,
        **PRE_NORMS,
        "mlp_residual.norm_in": "pre_feedforward_layernorm",
    }


@native_format
class Gemma3(Gemma2):
    """Gemma 3's language model (Gemma team 2025): norms on queries and keys as well, two kinds of wavelengths."""

    name = "gemma3_text"
    variant = "gemma3-style"
    fields = {**CAPPED, **ROPE_BY_LAYER}
    always = {**Gemma2.always, "qk_norm": "head"}
    only = {"use_bidirectional_attention": False}
    layer = {**Gemma2.layer, **QK_NORMS}
