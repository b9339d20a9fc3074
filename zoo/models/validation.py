"""The one place where the values of a configuration are checked."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers.configuration_utils import ALLOWED_LAYER_TYPES
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RopeParameters
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from zoo.base.errors import ConfigError, InvalidChoiceError, enumerate_names
from zoo.registry.names import is_number

from .fields import LARGEST, LARGEST_FLOAT, LAYER_TYPES, SETTINGS, Fields, divisors
from .parts import ATTENTIONS, MIXERS, PART_FIELDS

if TYPE_CHECKING:
    from .configuration import ZooConfig

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

FURTHER_TOKENS = {"num_nextn_predict_layers": "int", "mtp_loss_weight": "float"}
"""Types of the settings of further tokens, which few models predict."""

ELEMENTS = {"list[str]": str, "list[int]": int, "list[bool]": bool, "FilledNames": str, "FilledProviders": str}
"""Type of the items of a list, or of the keys of a dictionary."""


def validate(config: ZooConfig, layer_types: list[str] | None) -> None:
    for field, one in SETTINGS.items():
        value = getattr(config, field)
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if one.least is not None and number is not None:
                require_at_least(one.least, one.greatest, **{field: number})
        largest = LARGEST if isinstance(value, int) else LARGEST_FLOAT
        if one.positive and isinstance(value, (int, float)) and not 0 < value <= largest:
            raise ConfigError(f"{field}={value} was given; it must be positive and finite")
        if one.choices is not None and isinstance(value, str):
            InvalidChoiceError.check(value, valid=[member.value for member in one.choices], kind=field)
    for field, registry, name in config.named_parts():
        registry.get(name, provider=(config.providers or {}).get(field))
    validate_heads(config)
    if config.share_encoder_decoder_embeddings and config.stack == "encoder-decoder":
        validate_shared_vocabulary(config)
    if config.embedding_size and config.embedding_size != config.hidden_size and config.tie_word_embeddings:
        validate_tied_width(config)
    if layer_types is not None:
        validate_layer_types(config, layer_types)
    if config.nope_layers is not None:
        validate_pattern(config, "nope_layers", config.nope_layers)


def validate_types(config: ZooConfig) -> None:
    """Require values to be of the types that their fields are annotated with."""
    for field in dataclasses.fields(config):
        words = [word.strip() for word in field.type.split("|")] if isinstance(field.type, str) else []
        if words and TYPES.keys() >= set(words):
            require_type(field.name, getattr(config, field.name), *words)


def validate_options(config: ZooConfig) -> None:
    """Require settings of parts to have the type of their default, to be in range, and to pass the part's checks."""
    for field, registry in PART_FIELDS.items():
        part = registry.get(getattr(config, field))
        least = getattr(part, "least", {})
        for name, default in getattr(part, "options", {}).items():
            value, word = getattr(config, name, default), type(default).__name__
            if word in TYPES:
                require_type(name, value, word)
            if name in least and value is not None:
                require_at_least(least[name], **{name: value})
        if hasattr(part, "check_options"):
            part.check_options(config)
    if any(hasattr(config, name) for name in FURTHER_TOKENS):
        validate_further_tokens(config)


def validate_further_tokens(config: ZooConfig) -> None:
    """Require a decoder, and layers that can follow its last one, where further tokens are predicted in training."""
    for name, word in FURTHER_TOKENS.items():
        value = getattr(config, name, 0)
        require_type(name, value, word)
        require_at_least(0, **{name: value})
    depth = config.prediction_depth
    if depth and (config.stack != "decoder" or config.add_cross_attention):
        raise ConfigError(
            f"num_nextn_predict_layers={depth} was given for a model with an encoder; further tokens are predicted by "
            "decoders without one"
        )
    if depth and ATTENTIONS.get(config.attention).reads_earlier_layers:
        raise ConfigError(
            f"num_nextn_predict_layers={depth} was given with attention={config.attention!r}: its layers read what "
            "earlier ones keep, and a layer after the stack has no earlier one"
        )


def require_type(name: str, value: Any, *words: str) -> None:
    """Require a value to have one of some types; True and False are no numbers here."""
    types = [kind for word in words for kind in TYPES[word]]
    elements = [ELEMENTS[word] for word in words if word in ELEMENTS]
    is_valid = isinstance(value, tuple(types)) and (bool in types or not isinstance(value, bool))
    if isinstance(value, (list, tuple, dict)):
        is_valid = is_valid and all(type(element) in elements for element in value)
    if not is_valid:
        names = dict.fromkeys("None" if kind is type(None) else kind.__name__ for kind in types)
        raise ConfigError(f"{name}={value!r} was given; it must be {' or '.join(names)}")


def validate_tied_width(config: ZooConfig) -> None:
    """Require a narrow tied embedding to be as wide as what is projected onto the vocabulary."""
    if config.stack == "encoder-decoder" or not config.lm_head_transform:
        raise ConfigError(
            f"embedding_size={config.embedding_size} and hidden_size={config.hidden_size} with "
            "tie_word_embeddings=True were given, but the output projection reads hidden states: "
            "tie_word_embeddings=False, or in a single stack lm_head_transform=True, which leads back to embedding_size"
        )


def validate_shared_vocabulary(config: ZooConfig) -> None:
    """Require the one embedding of source and target to have a row for each target id, and no more if it is tied."""
    target = config.decoder_vocab_size or config.vocab_size
    if target > config.vocab_size or (config.tie_word_embeddings and target != config.vocab_size):
        raise ConfigError(
            f"vocab_size={config.vocab_size} and decoder_vocab_size={config.decoder_vocab_size} with "
            "share_encoder_decoder_embeddings=True were given, but one embedding has one vocabulary: give both alike, "
            "or share_encoder_decoder_embeddings=False"
        )


def validate_layer_types(config: ZooConfig, layer_types: list[str]) -> None:
    """Require layer types to name every layer, and windows to have a size."""
    valid = (*LAYER_TYPES, *filter(None, [config.mixer_layer_type]))
    if not isinstance(layer_types, (list, tuple)):
        raise ConfigError(f"layer_types={layer_types!r} was given; it must be a list of {enumerate_names(valid)}")
    for layer_type in (kind for kind in layer_types if kind not in valid):
        if mixers := [name for name in MIXERS if MIXERS.get(name).layer_type == layer_type]:
            raise ConfigError(
                f"layer_types names {layer_type} layers, but mixer={config.mixer!r} was given; "
                f"a mixer with such layers is {enumerate_names(mixers)}"
            )
        InvalidChoiceError.check(layer_type, valid=valid, kind="layer_types")
    validate_pattern(config, "layer_types", layer_types)
    if "sliding_attention" in layer_types and config.sliding_window is None:
        raise ConfigError("layer_types names sliding_attention layers, but sliding_window is None; give their window")


def validate_pattern(config: ZooConfig, field: str, pattern: list[Any]) -> None:
    """Require a pattern of layers to be no longer than the stack."""
    if not 1 <= len(pattern) <= config.num_hidden_layers:
        raise ConfigError(
            f"{field} has {len(pattern)} entries for num_hidden_layers={config.num_hidden_layers}; "
            "give one for every layer, or a shorter pattern to repeat"
        )


def require_own_layers(config: ZooConfig, given: str, why: str, *others: str) -> None:
    """Refuse share_layers=True next to a setting by which layers differ; `others` are settings that may be given."""
    if config.share_layers:
        raise ConfigError(
            f"{given} was given with share_layers=True, but its layers cannot be one: {why}; "
            f"give {', or '.join((*others, 'share_layers=False'))}"
        )


def require_at_least(least: float, greatest: float | None = None, /, **options: float) -> None:
    """Require settings to be finite, not too small, and not above `greatest` if that is given."""
    for name, value in options.items():
        largest = LARGEST if isinstance(value, int) else LARGEST_FLOAT  # that PyTorch computes with
        most = largest if greatest is None else greatest
        if not least <= value <= min(most, largest):
            valid = f"at least {least} and at most {most:,}"
            if most == LARGEST_FLOAT:
                valid = "a finite number" if least < 0 else f"a finite number, at least {least}"
            raise ConfigError(f"{name}={value} was given; it must be {valid}")


def validate_heads(config: ZooConfig) -> None:
    """Raise ConfigError if widths and numbers of heads do not fit each other."""
    # A saved configuration has a head_dim in any case: the decoder's differs where it only follows from the width.
    follows = config.head_dim is None or config.head_dim * config.num_attention_heads == config.hidden_size
    for field in ("num_attention_heads", "decoder_attention_heads"):
        heads = getattr(config, field)
        if heads and follows and config.hidden_size % heads:
            nearest = min(divisors(config.hidden_size), key=lambda divisor: abs(divisor - heads))
            raise ConfigError(
                f"{field}={heads} does not divide hidden_size={config.hidden_size}; "
                f"the nearest number that does is {nearest} (or give head_dim)"
            )
        grouped = config.num_key_value_heads not in (None, config.num_attention_heads)
        if heads and grouped and heads % config.num_key_value_heads:
            raise ConfigError(
                f"num_key_value_heads={config.num_key_value_heads} does not divide {field}={heads}: "
                "every key-value head serves the same number of query heads"
            )


MOST_LABELS = 1_000_000
DEFAULT_ROPE = "default"
ROPE_FIELDS = frozenset(RopeParameters.__annotations__) - {"rope_type"}
PLAIN: dict[str, tuple[type, ...]] = {
    "attn_implementation": (str, dict, type(None)),
    "transformers_weights": (str, type(None)),
}

RESTRICTED = frozenset({*PLAIN, *ROPE_FIELDS, "rope_scaling", "per_layer_config", "quantization_config"})
"""Settings of transformers with values that it cannot use, or that no model of the zoo reads."""

Config = TypeVar("Config")


def in_the_zoos_words(cls: type[Config]) -> type[Config]:
    """Class decorator, over `huggingface_hub.dataclasses.strict`: raise a ConfigError for errors of transformers."""
    strict_init: Callable[..., None] = cls.__init__

    @functools.wraps(strict_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            strict_init(self, *args, **kwargs)
        except StrictDataclassError as error:
            raise ConfigError(" ".join(str(error).split())) from error

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls


def validate_inherited(config: Any, kwargs: dict[str, Any]) -> None:
    """Raise ConfigError for labels, dtype, rotary settings, quantisation or names that transformers cannot use."""
    if config.id2label is not None or "num_labels" in kwargs:
        validate_labels(config.id2label, kwargs.get("num_labels"))
    dtype = kwargs.get("torch_dtype") if config.dtype is None else config.dtype
    dtype = getattr(torch, dtype, dtype) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ConfigError(f"dtype={dtype!r} was given; it must be a floating dtype of torch, e.g. 'bfloat16', or None")
    if kwargs.keys() & RESTRICTED:
        validate_restricted(kwargs)


def validate_restricted(kwargs: dict[str, Any]) -> None:
    """Raise ConfigError for rotary settings, quantisation or names that transformers cannot use."""
    for field, types in PLAIN.items():
        if not isinstance(kwargs.get(field), types):
            raise ConfigError(f"{field}={kwargs[field]!r} was given; it must be {types[0].__name__} or None")
    if kwargs.get("per_layer_config") is not None:
        raise ConfigError("per_layer_config was given; layers of the zoo's models differ by layer_types only")
    if (rope := {name: kwargs[name] for name in ROPE_FIELDS & kwargs.keys()}) or "rope_scaling" in kwargs:
        validate_rope_parameters(kwargs.get("rope_scaling"))
        validate_rope_parameters(rope)
    quantization = kwargs.get("quantization_config")
    if isinstance(quantization, dict):
        valid = sorted(AUTO_QUANTIZATION_CONFIG_MAPPING)
        InvalidChoiceError.check(quantization.get("quant_method"), valid=valid, kind="quant_method")
    elif quantization is not None and not hasattr(quantization, "to_dict"):
        raise ConfigError(f"quantization_config={quantization!r} was given; it must be an object with a quant_method")


def validate_labels(id2label: Any, num_labels: Any) -> None:
    numbered = isinstance(id2label, dict) and all(str(key).isdecimal() for key in id2label)
    if id2label is not None and not (numbered and id2label):
        raise ConfigError(f"id2label={id2label!r} was given; it must map the numbers from 0 on to labels")
    is_count = isinstance(num_labels, int) and not isinstance(num_labels, bool) and 1 <= num_labels <= MOST_LABELS
    if num_labels is not None and not is_count:
        raise ConfigError(f"num_labels={num_labels!r} was given; it must be at least 1 and at most {MOST_LABELS:,}")
    if num_labels is not None and id2label is not None and num_labels != len(id2label):
        raise ConfigError(f"num_labels={num_labels} was given with id2label of {len(id2label)}: give one of them")


def validate_rope_parameters(rope_parameters: Any, layer_types: tuple[str, ...] = ()) -> None:
    """Require rotary settings, of each of `layer_types` if any, to be numbers that a table can be made of."""
    if rope_parameters is None:
        return
    if not isinstance(rope_parameters, dict):
        raise ConfigError(f"rope_parameters={rope_parameters!r} was given; it must map names to numbers")
    if layer_types:
        if sorted(rope_parameters) != sorted(layer_types):
            raise ConfigError(
                f"rope_parameters={rope_parameters!r} was given; it must have {' and '.join(layer_types)}"
            )
        for own in rope_parameters.values():
            validate_rope_parameters(own)
        return
    if any(isinstance(value, dict) or name in ALLOWED_LAYER_TYPES for name, value in rope_parameters.items()):
        raise ConfigError(
            f"rope_parameters={rope_parameters!r} differ between layer types; position='rotary-by-layer' reads that"
        )
    valid = [DEFAULT_ROPE, *sorted(ROPE_INIT_FUNCTIONS)]
    kind = rope_parameters.get("rope_type", rope_parameters.get("type", DEFAULT_ROPE))  # older checkpoints have "type"
    InvalidChoiceError.check(kind, valid=valid, kind="rope_type")
    for name in ROPE_FIELDS & rope_parameters.keys():
        value = rope_parameters[name]
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if not (value is None or isinstance(value, bool) or all(is_number(n) and n > 0 for n in numbers)):
            raise ConfigError(f"rope_parameters has {name}={value!r}; it must be positive and finite")


ROPE_OF_WEIGHTS = ("rope_theta", "partial_rotary_factor")  # What weights are trained with, and scaling leaves alone


def rescaled(rope_parameters: Any, own: Any) -> Any:
    """Rotary settings, of all layers or by layer type, with what they lack of `ROPE_OF_WEIGHTS` of others."""
    if not (isinstance(rope_parameters, dict) and isinstance(own, dict)):
        return rope_parameters
    if any(isinstance(value, dict) for value in rope_parameters.values()):
        return {kind: rescaled(values, own.get(kind, own)) for kind, values in rope_parameters.items()}
    return {**{name: own[name] for name in ROPE_OF_WEIGHTS if name in own}, **rope_parameters}


def with_given(saved: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Replace saved settings by those among the arguments of `from_pretrained`, which are taken out of these."""
    if "rope_scaling" in kwargs:
        kwargs["rope_parameters"] = kwargs.pop("rope_scaling")
    names = {*saved, *Fields.__annotations__, "layer_types", "rope_parameters"} - {"dtype", "torch_dtype"}
    given = {name: kwargs.pop(name) for name in names & kwargs.keys()}
    if "quirks" in given and [*(given["quirks"] or ())] != [*(saved.get("quirks") or ())]:
        raise ConfigError(f"quirks={given['quirks']} was given; a checkpoint has its own, zoo.build makes others")
    if "id2label" in given or kwargs.get("num_labels") not in (None, len(saved.get("id2label") or ())):
        saved = {name: value for name, value in saved.items() if name not in ("id2label", "label2id")}
    if "rope_parameters" in given:
        given["rope_parameters"] = rescaled(given["rope_parameters"], saved.get("rope_parameters"))
    return {**saved, **given}


def validate_rope_tables(config: Any, layer_types: tuple[str, ...] = ()) -> None:
    """Compute the rotary frequencies of all layer types once, as the model will, and raise ConfigError if it fails."""
    width = config.head_dim
    for rope in [config.rope_parameters[kind] for kind in layer_types] or [config.rope_parameters]:
        own = copy.copy(config)
        own.rope_parameters, given = rope, f"rope_parameters={rope!r}"
        compute = ROPE_INIT_FUNCTIONS.get(rope.setdefault("rope_type", DEFAULT_ROPE))
        turned = 2 * math.ceil(int(width * (rope.get("partial_rotary_factor") or 1.0)) / 2)  # channels turn in pairs
        if not 0 < turned <= width:
            raise ConfigError(
                f"{given} turn {turned} of head_dim={width} channels; give an even head_dim, and a "
                "partial_rotary_factor of at most 1 that leaves at least one channel"
            )
        try:
            usable = compute is None or bool(torch.isfinite(compute(own, torch.device("cpu"))[0]).all())
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(f"{given} cannot be used: {type(error).__name__}: {error}") from error
        if not usable:
            raise ConfigError(f"{given} give frequencies that are no finite numbers")
