"""The one place where the values of a configuration are checked."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ConfigError, InvalidChoiceError, enumerate_names

from .fields import LARGEST, LARGEST_FLOAT, SETTINGS
from .parts import ATTENTIONS, MIXERS, PART_FIELDS, named_parts

if TYPE_CHECKING:
    from .configuration import ZooConfig
    from .fields import Setting

LAYER_TYPES = ("full_attention", "sliding_attention")
TYPES: dict[str, tuple[type, ...]] = {
    "None": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list[str]": (list, tuple),
    "list[int]": (list, tuple),
    "list[bool]": (list, tuple),
    "FilledInt": (int, type(None)),
    "FilledBool": (bool, type(None)),
    "FilledFloat": (int, float, type(None)),
    "FilledNames": (list, tuple, type(None)),
    "FilledProviders": (dict, type(None)),
}
"""Values that a field may have, by the words of its annotation."""

ELEMENTS = {"list[str]": str, "list[int]": int, "list[bool]": bool, "FilledNames": str, "FilledProviders": str}
"""Type of the items of a list, or of the keys of a dictionary."""


def validate(config: ZooConfig, layer_types: list[str] | None) -> None:
    """Check a configuration as it was given."""
    for field, one in SETTINGS.items():
        validate_number(field, getattr(config, field), one)
        if one.choices is not None and isinstance(value := getattr(config, field), str):
            require_choice(field, value, [member.value for member in one.choices])
    for field, registry, name in named_parts(config):
        registry.get(name, provider=(config.providers or {}).get(field))
    validate_heads(config)
    validate_embeddings(config)
    validate_layers(config, layer_types)


def validate_number(field: str, value: Any, one: Setting) -> None:
    """Require numbers to be in the range of their field, and finite."""
    least = one.least
    for number in as_list(value):
        if least is not None and number is not None and not least <= number <= min(one.greatest, largest(number)):
            raise ConfigError(f"{field}={number} was given; it must be {range_in_words(least, one.greatest)}")
    if one.positive and isinstance(value, (int, float)) and not 0 < value <= largest(value):
        raise ConfigError(f"{field}={value} was given; it must be positive and finite")


def validate_types(config: ZooConfig) -> None:
    """Require values to be of the types that their fields are annotated with."""
    for field in dataclasses.fields(config):
        words = [word.strip() for word in field.type.split("|")] if isinstance(field.type, str) else []
        value = getattr(config, field.name)
        if words and set(words) <= TYPES.keys() and not any(is_of_type(value, word) for word in words):
            raise ConfigError(f"{field.name}={value!r} was given; it must be {type_in_words(words)}")


def validate_options(config: ZooConfig) -> None:
    """Require settings of parts to have the type of their default, and to pass the checks of the part."""
    for field, registry in PART_FIELDS.items():
        part = registry.get(getattr(config, field))
        for name, default in getattr(part, "options", {}).items():
            value, word = getattr(config, name, default), type(default).__name__
            if word in TYPES and not is_of_type(value, word):
                raise ConfigError(f"{name}={value!r} was given; it must be {type_in_words([word])}")
        if hasattr(part, "check_options"):
            part.check_options(config)
    validate_further_tokens(config)


def validate_further_tokens(config: ZooConfig) -> None:
    """Require a decoder, and layers that can follow its last one, where further tokens are predicted in training."""
    for name, word in (("num_nextn_predict_layers", "int"), ("mtp_loss_weight", "float")):
        value = getattr(config, name, 0)
        if not is_of_type(value, word):
            raise ConfigError(f"{name}={value!r} was given; it must be {type_in_words([word])}")
        require_at_least(0, **{name: value})
    if not (depth := getattr(config, "num_nextn_predict_layers", 0)):
        return
    if config.stack != "decoder" or config.add_cross_attention:
        raise ConfigError(
            f"num_nextn_predict_layers={depth} was given for a model with an encoder; further tokens are predicted by "
            "decoders without one"
        )
    if ATTENTIONS.get(config.attention).reads_earlier_layers:
        raise ConfigError(
            f"num_nextn_predict_layers={depth} was given with attention={config.attention!r}, whose layers read what "
            "earlier ones keep: a layer behind the stack has no earlier one"
        )


def type_in_words(words: list[str]) -> str:
    """Write a type for a message."""
    names = dict.fromkeys("None" if kind is type(None) else kind.__name__ for word in words for kind in TYPES[word])
    return " or ".join(names)


def is_of_type(value: Any, word: str) -> bool:
    """Whether a value has a type; True and False are no numbers here."""
    types = TYPES[word]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        return False
    return not isinstance(value, (list, tuple, dict)) or all(type(element) is ELEMENTS[word] for element in value)


def require_choice(field: str, value: object, valid: list[str]) -> None:
    """Require a value to be among its choices."""
    if value not in valid:
        raise InvalidChoiceError(str(value), valid, kind=field)


def validate_embeddings(config: ZooConfig) -> None:
    """Require tied embeddings to be as wide as what is projected onto the vocabulary."""
    transformed = config.stack != "encoder-decoder" and config.lm_head_transform
    if config.embedding_size not in (None, config.hidden_size) and config.tie_word_embeddings and not transformed:
        raise ConfigError(
            f"embedding_size={config.embedding_size} and hidden_size={config.hidden_size} with "
            "tie_word_embeddings=True were given, but the output projection reads hidden states: "
            "tie_word_embeddings=False, or in a single stack lm_head_transform=True, which leads back to embedding_size"
        )


def validate_layers(config: ZooConfig, layer_types: list[str] | None) -> None:
    """Require layer types to name every layer, and windows to have a size."""
    own = config.mixer_layer_type
    valid = LAYER_TYPES if own is None else (*LAYER_TYPES, own)
    if not isinstance(layer_types, (list, tuple, type(None))):
        raise ConfigError(f"layer_types={layer_types!r} was given; it must be a list of {enumerate_names(valid)}")
    for layer_type in layer_types or ():
        mixers = [name for name in MIXERS if MIXERS.get(name).layer_type == layer_type]
        if layer_type not in valid and mixers:
            raise ConfigError(
                f"layer_types names {layer_type} layers, but mixer={config.mixer!r} was given; "
                f"a mixer with such layers is {enumerate_names(mixers)}"
            )
        require_choice("layer_types", layer_type, list(valid))
    for field, pattern in (("layer_types", layer_types), ("nope_layers", config.nope_layers)):
        if pattern is not None and not 1 <= len(pattern) <= config.num_hidden_layers:
            raise ConfigError(
                f"{field} has {len(pattern)} entries for num_hidden_layers={config.num_hidden_layers}; "
                "give one for every layer, or a shorter pattern to repeat"
            )
    if "sliding_attention" in (layer_types or ()) and config.sliding_window is None:
        raise ConfigError("layer_types names sliding_attention layers, but sliding_window is None; give their window")


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
    """Raise ConfigError if widths and numbers of heads do not fit each other."""
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
