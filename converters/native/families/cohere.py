"""Cohere's Command R and R7B: sublayers in parallel, norms without biases, a factor on the logits."""

from __future__ import annotations

from ..base import native_format
from ..declared import biasless, same
from ..decoders import NOPE_BY_LAYER, ROPE, WINDOWS_BY_LAYER, DecoderFormat
from .llama import ATTENTION, ATTENTION_BIAS, GATED, NO_BIASES, SAME_OUT_BIAS, SIZES


@native_format
class Cohere(DecoderFormat):
    """Command R (Cohere 2024)."""

    name = "cohere"
    variant = "gptj-style"
    fields = {**SIZES, **same("layer_norm_eps", "logit_scale"), **ATTENTION_BIAS, "rope_parameters": ROPE}
    always = {
        **NO_BIASES,
        **SAME_OUT_BIAS,
        "position": "rotary-interleaved",
        "feed_forward": "gated",
        "parallel_residual": True,
    }
    only = {"use_qk_norm": False}
    body = {"embed_tokens": "embed_tokens", **biasless({"norm": "norm"})}
    layer = {**ATTENTION, **GATED, **biasless({"residual.norm_in": "input_layernorm"})}
    biased_norms = False


@native_format
class Cohere2(Cohere):
    """Command R7B (Cohere 2024): windows layer by layer; the layers without have no positions."""

    name = "cohere2"
    fields = {
        **Cohere.fields,
        **WINDOWS_BY_LAYER,
        "nope_layers": NOPE_BY_LAYER,
    }
    only = {}
