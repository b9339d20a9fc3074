"""A checkpoint's architecture in words and numbers, from its configuration and the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]

TABLES = ("embed_tokens.weight", "position.weight", "wte.weight", "wpe.weight", "embeddings.weight")
"""How the names of lookup tables end: they cost memory and no arithmetic."""

LAYER = "layers.0."


def parameter_count(shapes: Shapes) -> int:
    """Count what a checkpoint stores."""
    return sum(prod(shape) for shape in shapes.values())


def forward_flops(config: Mapping[str, Any], shapes: Shapes) -> int | None:
    """Estimate the arithmetic of a forward pass: two operations for every weight of every matrix that a token meets."""
    if "variant" not in config:
        return None
    repeats = int(config.get("num_hidden_layers", 1)) if config.get("share_layers") else 1
    weights = 0
    for name, shape in shapes.items():
        if len(shape) > 1 and not name.endswith(TABLES):
            weights += prod(shape) * (repeats if LAYER in name else 1)
    if config.get("tie_word_embeddings") and not any(name.startswith("lm_head.") for name in shapes):
        width = config.get("embedding_size") or config["hidden_size"]
        weights += int(config.get("decoder_vocab_size") or config["vocab_size"]) * int(width)
    return 2 * weights


def describe_axes(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Describe what a model is made of.

    Returns:
        Axes and their values, in the order of the forward pass.
    """
    if "variant" not in config:
        return [("Model type", str(config.get("model_type", "unknown")))]
    axes = {
        "Variant": f"`{config['variant']}`",
        "Stack": _stack(config),
        "Width": config.get("hidden_size"),
        "Layers": _pair(config, "num_hidden_layers", "decoder_layers"),
        "Vocabulary": _pair(config, "vocab_size", "decoder_vocab_size"),
        "Positions": f"{config.get('position')}, up to {config.get('max_position_embeddings')}",
        "Norm": f"{config.get('norm')}, placed: {config.get('norm_placement')}",
        "Attention": _attention(config),
        "Feed-forward": _feed_forward(config),
        "Residual": _residual(config),
        "Embeddings": _embeddings(config),
    }
    return [(axis, str(value)) for axis, value in axes.items() if value is not None]


def _residual(config: Mapping[str, Any]) -> str:
    words = [config.get("residual", "plain"), "parallel" if config.get("parallel_residual") else None]
    chosen = [str(word) for word in (*words, config.get("residual_scaling")) if word not in (None, "plain")]
    return ", ".join(chosen) or "plain"


def _stack(config: Mapping[str, Any]) -> str:
    if config.get("is_encoder_decoder"):
        return "encoder-decoder"
    stack = "decoder" if config.get("is_decoder") else "encoder"
    return f"{stack}, all layers sharing one set of weights" if config.get("share_layers") else stack


def _pair(config: Mapping[str, Any], field: str, decoder_field: str) -> str:
    own, decoder = config.get(field), config.get(decoder_field)
    return f"{own} and {decoder}" if config.get("is_encoder_decoder") and decoder is not None else str(own)


def _attention(config: Mapping[str, Any]) -> str:
    parts = [f"{config.get('attention')}, {_pair(config, 'num_attention_heads', 'decoder_attention_heads')} heads"]
    key_value_heads = config.get("num_key_value_heads")
    if key_value_heads not in (None, config.get("num_attention_heads")):
        parts.append(f"{key_value_heads} of keys and values")
    parts.append(f"{config.get('head_dim')} wide")
    parts.append("with biases" if config.get("attention_bias") else "without biases")
    parts.append(f"scaled by {config.get('attention_scale')}")
    if config.get("qk_norm"):
        parts.append(f"norm on queries and keys: {config['qk_norm']}")
    if config.get("sliding_window"):
        parts.append(f"sliding window of {config['sliding_window']}")
    if config.get("attn_logit_softcapping"):
        parts.append(f"scores capped at {config['attn_logit_softcapping']}")
    if (mixer := config.get("mixer", "attention")) != "attention":
        parts.append(f"in some layers {mixer} instead")
    return ", ".join(parts)


def _feed_forward(config: Mapping[str, Any]) -> str:
    width = _pair(config, "intermediate_size", "decoder_intermediate_size")
    biases = "with biases" if config.get("mlp_bias") else "without biases"
    return f"{config.get('feed_forward')}, {config.get('hidden_act')}, {width} wide, {biases}"


def _embeddings(config: Mapping[str, Any]) -> str:
    parts = ["tied to the output" if config.get("tie_word_embeddings") else "not tied"]
    if config.get("share_encoder_decoder_embeddings"):
        parts.append("source and target shared")
    if config.get("embedding_size"):
        parts.append(f"{config['embedding_size']} wide and projected")
    if config.get("scale_embedding"):
        parts.append("scaled by the square root of the width")
    if config.get("embedding_norm"):
        parts.append("normed")
    return ", ".join(parts)
