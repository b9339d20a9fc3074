"""Fields of a configuration that are derived from others unless they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .choices import NormPlacement
from .parts import named_parts

if TYPE_CHECKING:
    from .configuration import ZooConfig

Kind = TypeVar("Kind")


def fill(config: ZooConfig) -> None:
    """Fill what follows from other fields.

    Args:
        config: A valid configuration, changed in place.
    """
    config.quirks = list(config.quirks or [])
    config.providers = find_providers(config)
    if config.num_key_value_heads is None:
        config.num_key_value_heads = config.num_attention_heads
    if config.head_dim is None:
        config.head_dim = config.hidden_size // config.num_attention_heads
    if config.attention_out_bias is None:
        config.attention_out_bias = config.attention_bias
    if config.final_norm is None:
        config.final_norm = config.norm_placement in (NormPlacement.PRE, NormPlacement.SANDWICH)
    if config.embedding_norm_eps is None:
        config.embedding_norm_eps = config.layer_norm_eps
    if config.classifier_dropout is None:
        config.classifier_dropout = config.dropout
    if config.initializer_range is None:
        config.initializer_range = usual_range(config.hidden_size, config.initializer_width)
    if config.nope_layers is not None:
        nope = repeat_pattern(config.nope_layers, config.num_hidden_layers)
        config.nope_layers = nope if any(nope) else None
    if config.is_encoder_decoder and not config.is_decoder:
        fill_decoder(config)


def fill_decoder(config: ZooConfig) -> None:
    """Make a decoder like its encoder where nothing else was said.

    Args:
        config: The configuration of an encoder-decoder, changed in place.
    """
    if config.decoder_vocab_size is None:
        config.decoder_vocab_size = config.vocab_size
    if config.decoder_layers is None:
        config.decoder_layers = config.num_hidden_layers
    if config.decoder_attention_heads is None:
        config.decoder_attention_heads = config.num_attention_heads
    if config.decoder_intermediate_size is None:
        config.decoder_intermediate_size = config.intermediate_size
    if config.decoder_start_token_id is None:
        config.decoder_start_token_id = config.bos_token_id


def usual_range(width: int, full_width: int) -> float:
    """Standard deviation of new weights: 0.02, as in BERT and GPT-2, and larger in narrow models."""
    return float(0.02 * max(1.0, full_width / width) ** 0.5)


def repeat_pattern(pattern: list[Kind], length: int) -> list[Kind]:
    """Repeat a pattern over the layers."""
    return [pattern[i % len(pattern)] for i in range(length)]


def usual_layer_types(config: ZooConfig) -> list[str] | None:
    """Default pattern of layer types: None if all are alike; with a mixer, every other layer has attention."""
    if config.mixer_layer_type is None:
        return None
    attention = "full_attention" if config.sliding_window is None else "sliding_attention"
    return [config.mixer_layer_type, attention]


def find_providers(config: ZooConfig) -> dict[str, str]:
    """Find the distributions that a configuration needs in addition to the zoo."""
    origins = {field: registry.origin(name) for field, registry, name in named_parts(config)}
    return {
        field: origin.distribution for field, origin in origins.items() if not origin.built_in and origin.distribution
    }
