"""Decoders that differ from Llama in a line or two."""

from __future__ import annotations

from typing import Any

from ..base import native_format
from ..declared import Field, same, without
from ..decoders import WINDOWS_BY_LAYER, DecoderFormat
from .llama import SAME_BIASES, Llama, LlamaLike, any_attention_bias

INTERLEAVED = {"position": "rotary-interleaved"}


@native_format
class Helium(LlamaLike):
    """Helium (Kyutai 2025): rotates neighbouring columns."""

    name = "helium"
    fields = {**LlamaLike.fields, **same("attention_bias", "mlp_bias")}
    always = {**LlamaLike.always, **INTERLEAVED}


@native_format
class Ernie45(LlamaLike):
    """ERNIE 4.5 (Baidu 2025), dense: rotates neighbouring columns, one setting for all biases."""

    name = "ernie4_5"
    fields = {
        **without(LlamaLike.fields, "attention_dropout"),
        "attention_bias": Field("use_bias", has=any_attention_bias),
    }
    always = {
        **LlamaLike.always,
        **INTERLEAVED,
        **SAME_BIASES,
    }


@native_format
class SeedOss(LlamaLike):
    """Seed-OSS (ByteDance 2025): biases of queries, keys and values, and of attention's output, each by itself."""

    name = "seed_oss"
    fields = {
        **LlamaLike.fields,
        **same("attention_bias", "attention_out_bias", "mlp_bias"),
        "dropout": "residual_dropout",
    }


@native_format
class Arcee(LlamaLike):
    """AFM (Arcee 2025): a feed-forward network without a gate."""

    name = "arcee"
    fields = Llama.fields
    always = {**Llama.always, "feed_forward": "mlp"}
    layer = without(LlamaLike.layer, "mlp.gate_proj")
    reasons = dict(DecoderFormat.reasons)


@native_format
class Cwm(LlamaLike):
    """Code World Model (Meta 2025): windows layer by layer."""

    name = "cwm"
    fields = {**LlamaLike.fields, **same("mlp_bias"), **WINDOWS_BY_LAYER}


@native_format
class Ministral(LlamaLike):
    """Ministral (Mistral AI 2024): windows layer by layer."""

    name = "ministral"
    fields = {**LlamaLike.fields, **WINDOWS_BY_LAYER}


def nope_layers(native: Any) -> list[bool] | None:
    """Which layers do not rotate."""
    return None if all(native.no_rope_layers) else [not rotates for rotates in native.no_rope_layers]


@native_format
class SmolLm3(LlamaLike):
    """SmolLM 3 (Hugging Face 2025): some layers do not rotate; windows layer by layer."""

    name = "smollm3"
    variant = "smollm3-style"
    fields = {
        **Llama.fields,
        **WINDOWS_BY_LAYER,
        "nope_layers": Field(
            "no_rope_layers",
            nope_layers,
            lambda config: [int(not nope) for nope in config.nope_layers or [False] * config.num_hidden_layers],
        ),
    }
    always = Llama.always
    follows = {"use_sliding_window": lambda config: config.sliding_window is not None}
