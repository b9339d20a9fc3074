"""Which numbers the fields of a configuration may hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ConfigError

if TYPE_CHECKING:
    from .configuration import ZooConfig

# Far larger than any existing model, so that a typing error is reported before memory or time run out.
WIDEST = 2**20
"""The widest vector."""
MOST = 10_000
"""The most layers, heads or buckets."""
LARGEST = 2**31 - 1
"""The largest number of ids or positions."""

LARGEST_FLOAT = float.fromhex("0x1.fffffep+127")
"""The largest number of float32."""

RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("vocab_size", "decoder_vocab_size", "max_position_embeddings", "sliding_window"), (1, LARGEST)),
    **dict.fromkeys(("hidden_size", "embedding_size", "head_dim", "initializer_width"), (1, WIDEST)),
    **dict.fromkeys(("intermediate_size", "decoder_intermediate_size"), (1, WIDEST)),
    **dict.fromkeys(("num_hidden_layers", "decoder_layers"), (1, MOST)),
    **dict.fromkeys(("num_attention_heads", "decoder_attention_heads", "num_key_value_heads"), (1, MOST)),
    "relative_attention_num_buckets": (1, MOST),
    **dict.fromkeys(("relative_attention_max_distance", "classifier_positions", "type_vocab_size"), (1, LARGEST)),
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "classifier_dropout"), (0, 1)),
    **dict.fromkeys(("layer_norm_eps", "embedding_norm_eps", "initializer_range"), (0, LARGEST_FLOAT)),
    **dict.fromkeys(("dyt_alpha", "layer_scale_init", "logit_scale"), (-LARGEST_FLOAT, LARGEST_FLOAT)),
    # transformers' own configurations have -1 where there is no such token.
    **dict.fromkeys(("pad_token_id", "decoder_pad_token_id", "bos_token_id"), (-1, LARGEST)),
    **dict.fromkeys(("eos_token_id", "decoder_start_token_id"), (-1, LARGEST)),
}
"""The least and the greatest value of a field; where it is a list, of what is in it."""

POSITIVE = ("attention_scale", "attn_logit_softcapping", "final_logit_softcapping", "sinusoidal_theta")
"""Fields that something is divided by."""


def validate_numbers(config: ZooConfig) -> None:
    """Require numbers to be in the range of their field, and finite."""
    for field, (least, greatest) in RANGES.items():
        for value in as_list(getattr(config, field)):
            if value is not None and not least <= value <= min(greatest, largest(value)):
                raise ConfigError(f"{field}={value} was given; it must be {range_in_words(least, greatest)}")
    for field in POSITIVE:
        value = getattr(config, field)
        if isinstance(value, (int, float)) and not 0 < value <= largest(value):
            raise ConfigError(f"{field}={value} was given; it must be positive and finite")


def require_at_least(least: float, **options: float) -> None:
    """Require settings of a part to be finite and not too small."""
    for name, value in options.items():
        if not least <= value <= largest(value):
            raise ConfigError(f"{name}={value} was given; it must be {range_in_words(least, largest(value))}")


def largest(value: float) -> float:
    """The largest number of a kind that PyTorch computes with."""
    return LARGEST if isinstance(value, int) else LARGEST_FLOAT


def as_list(value: Any) -> list[Any]:
    """Take a value for a list of one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def range_in_words(least: float, greatest: float) -> str:
    """Write a range for a message."""
    if greatest == LARGEST_FLOAT:
        return "a finite number" if least < 0 else f"a finite number, at least {least}"
    return f"at least {least} and at most {greatest:,}"


def validate_heads(config: ZooConfig) -> None:
    """Require widths and numbers of heads to fit each other.

    Args:
        config: The configuration with numbers in their ranges.

    Raises:
        ConfigError: When they do not.
    """
    # A saved configuration has a head_dim in any case: the decoder's differs where it only follows from the width.
    follows = config.head_dim is None or config.head_dim * config.num_attention_heads == config.hidden_size
    for field in ("num_attention_heads", "decoder_attention_heads"):
        heads = getattr(config, field)
        if heads is None:
            continue
        if follows and config.hidden_size % heads:
            raise ConfigError(
                f"{field}={heads} does not divide hidden_size={config.hidden_size}; "
                f"the nearest number that does is {nearest_divisor(config.hidden_size, heads)} (or give head_dim)"
            )
        grouped = config.num_key_value_heads not in (None, config.num_attention_heads)
        if grouped and heads % config.num_key_value_heads:
            raise ConfigError(
                f"num_key_value_heads={config.num_key_value_heads} does not divide {field}={heads}: "
                "every key-value head serves the same number of query heads"
            )


def nearest_divisor(number: int, wanted: int) -> int:
    """Find the divisor of a number that is nearest to another number."""
    divisors = (
        n for small in range(1, math.isqrt(number) + 1) if number % small == 0 for n in (small, number // small)
    )
    return min(divisors, key=lambda divisor: (abs(divisor - wanted), divisor))
