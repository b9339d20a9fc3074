"""OLMo 2 and 3: norms on the branches' outputs, and on whole queries and keys."""

from __future__ import annotations

from ..base import native_format
from ..decoders import ROPE_BY_LAYER, WINDOWS_BY_LAYER
from .llama import ATTENTION, ATTENTION_BIAS, GATED, QK_NORMS, SAME_OUT_BIAS, LlamaLike

BRANCH_NORMS = {
    "self_attn_residual.norm_branch": "post_attention_layernorm",
    "mlp_residual.norm_branch": "post_feedforward_layernorm",
}


@native_format
class Olmo2(LlamaLike):
    """OLMo 2 (OLMo team 2024)."""

    name = "olmo2"
    variant = "olmo2-style"
    fields = {**LlamaLike.fields, **ATTENTION_BIAS}
    always = {**LlamaLike.always, **SAME_OUT_BIAS, "norm_placement": "res-post", "qk_norm": "full"}
    layer = {**ATTENTION, **QK_NORMS, **GATED, **BRANCH_NORMS}


@native_format
class Olmo3(Olmo2):
    """OLMo 3 (OLMo team 2025): as OLMo 2, with windows layer by layer, without which wavelengths may be scaled."""

    name = "olmo3"
    variant = "olmo3-style"
    fields = {**Olmo2.fields, **WINDOWS_BY_LAYER, **ROPE_BY_LAYER}
