"""The one place where the values of a configuration are checked."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ConfigError, InvalidChoiceError, enumerate_names

from .choices import AttentionScale, NormPlacement, Pooling, QKNorm, ResidualScaling
from .parts import ATTENTIONS, MIXERS, PART_FIELDS, named_parts
from .ranges import require_at_least, validate_heads, validate_numbers

if TYPE_CHECKING:
    from .configuration import ZooConfig

CHOICES: dict[str, type[Enum]] = {
    "norm_placement": NormPlacement,
    "classifier_pooling": Pooling,
    "qk_norm": QKNorm,
    "residual_scaling": ResidualScaling,
}
OPTIONAL = {"qk_norm", "residual_scaling"}
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
    validate_numbers(config)
    for field, choice in CHOICES.items():
        value = getattr(config, field)
        if not (value is None and field in OPTIONAL):
            require_choice(field, value, [member.value for member in choice])
    for field, registry, name in named_parts(config):
        registry.get(name, provider=(config.providers or {}).get(field))
    if isinstance(config.attention_scale, str):
        require_choice("attention_scale", config.attention_scale, [member.value for member in AttentionScale])
    validate_heads(config)
    validate_embeddings(config)
    validate_layers(config, layer_types)


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
    """Require a decoder, and layers that can follow its last one, where further tokens are predicted in training.

    Raises:
        ConfigError: When there is none, or a number is not what it must be.
    """
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
    transformed = config.stack == "encoder" and config.lm_head_transform
    if config.embedding_size not in (None, config.hidden_size) and config.tie_word_embeddings and not transformed:
        raise ConfigError(
            f"embedding_size={config.embedding_size} and hidden_size={config.hidden_size} with "
            "tie_word_embeddings=True were given, but the output projection reads hidden states: "
            "tie_word_embeddings=False, or in an encoder lm_head_transform=True, which leads back to embedding_size"
        )


def validate_layers(config: ZooConfig, layer_types: list[str] | None) -> None:
    """Require layer types to name every layer, and windows to have a size.

    Args:
        layer_types: The kind of each layer, or a pattern of them.

    Raises:
        ConfigError: When they do not.
    """
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
