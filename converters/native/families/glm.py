"""GLM-4: Llama with interleaved rotary positions in a part of each head, and norms after the sublayers too."""

from __future__ import annotations

from ..base import native_format
from ..declared import same
from ..decoders import PARTIAL_ROPE
from .llama import ATTENTION, PRE_NORMS, LlamaLike
from .phi import JOINED_GATE


@native_format
class Glm(LlamaLike):
    """GLM-4-9B (GLM team 2024)."""

    name = "glm"
    fields = {**LlamaLike.fields, **same("attention_bias"), "rope_parameters": PARTIAL_ROPE}
    always = {**LlamaLike.always, "position": "rotary-interleaved"}
    layer = {**ATTENTION, **JOINED_GATE, **PRE_NORMS}


@native_format
class Glm4(Glm):
    """GLM-4-0414: norms on both sides of the sublayers."""

    name = "glm4"
    variant = "sandwich-norm"
    always = {**Glm.always, "norm_placement": "sandwich"}
    layer = {
        **Glm.layer,
        "self_attn_residual.norm_branch": "post_self_attn_layernorm",
        "mlp_residual.norm_branch": "post_mlp_layernorm",
    }
