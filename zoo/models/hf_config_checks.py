"""Checks of the fields that every configuration of transformers has, which transformers itself takes on trust."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers.configuration_utils import ALLOWED_LAYER_TYPES
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RopeParameters
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from zoo.base.errors import ConfigError, InvalidChoiceError

MOST_LABELS = 1_000_000
DEFAULT_ROPE = "default"
ROPE_FIELDS = frozenset(RopeParameters.__annotations__) - {"rope_type"}
PLAIN: dict[str, tuple[type, ...]] = {
    "attn_implementation": (str, dict, type(None)),
    "transformers_weights": (str, type(None)),
}

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
    validate_labels(config.id2label, kwargs.get("num_labels"))
    for field, types in PLAIN.items():
        if not isinstance(kwargs.get(field), types):
            raise ConfigError(f"{field}={kwargs[field]!r} was given; it must be {types[0].__name__} or None")
    if not is_list_of_names(config.architectures):
        raise ConfigError(f"architectures={config.architectures!r} was given; it must be a list of names of classes")
    if kwargs.get("per_layer_config") is not None:
        raise ConfigError("per_layer_config was given; layers of the zoo's models differ by layer_types only")
    validate_rope_parameters(kwargs.get("rope_scaling"))
    validate_rope_parameters({name: kwargs[name] for name in ROPE_FIELDS & kwargs.keys()})
    dtype = config.dtype if config.dtype is not None else kwargs.get("torch_dtype")
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype, dtype)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ConfigError(f"dtype={dtype!r} was given; it must be a floating dtype of torch, e.g. 'bfloat16', or None")
    quantization = kwargs.get("quantization_config")
    if isinstance(quantization, dict):
        method = quantization.get("quant_method")
        if method not in list(AUTO_QUANTIZATION_CONFIG_MAPPING):
            raise InvalidChoiceError(str(method), sorted(AUTO_QUANTIZATION_CONFIG_MAPPING), kind="quant_method")
    elif quantization is not None and not hasattr(quantization, "to_dict"):
        raise ConfigError(f"quantization_config={quantization!r} was given; it must be an object with a quant_method")


def validate_labels(id2label: Any, num_labels: Any) -> None:
    """Require labels that can be counted."""
    numbered = isinstance(id2label, dict) and all(str(key).isdecimal() for key in id2label)
    if id2label is not None and not (numbered and id2label):
        raise ConfigError(f"id2label={id2label!r} was given; it must map the numbers from 0 on to labels")
    is_count = isinstance(num_labels, int) and not isinstance(num_labels, bool) and 1 <= num_labels <= MOST_LABELS
    if num_labels is not None and not is_count:
        raise ConfigError(f"num_labels={num_labels!r} was given; it must be at least 1 and at most {MOST_LABELS:,}")


def is_list_of_names(value: Any) -> bool:
    """Whether a value is a list of words, or None."""
    return value is None or (isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value))


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
    kind = rope_parameters.get("rope_type", DEFAULT_ROPE)
    valid = [DEFAULT_ROPE, *sorted(ROPE_INIT_FUNCTIONS)]
    if kind not in valid:
        raise InvalidChoiceError(str(kind), valid, kind="rope_type")
    for name in ROPE_FIELDS & rope_parameters.keys():
        value = rope_parameters[name]
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if not (value is None or isinstance(value, bool) or all(is_number(n) and n > 0 for n in numbers)):
            raise ConfigError(f"rope_parameters has {name}={value!r}; it must be positive and finite")


def is_number(value: Any) -> bool:
    """Whether a value is a number that one can compute with."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def validate_rope_tables(config: Any, layer_types: tuple[str, ...] = ()) -> None:
    """Compute the rotary frequencies of all layer types once, as the model will, and raise ConfigError if it fails."""
    for layer_type in layer_types:
        own = copy.copy(config)
        own.rope_parameters = config.rope_parameters[layer_type]
        validate_rope_tables(own)
    if layer_types:
        return
    compute = ROPE_INIT_FUNCTIONS.get(config.rope_parameters.setdefault("rope_type", DEFAULT_ROPE))
    if (config.rope_parameters.get("partial_rotary_factor") or 1.0) > 1:
        raise ConfigError(f"rope_parameters={config.rope_parameters!r} turn more than all of a head")
    if compute is None:
        return
    try:
        frequencies, _ = compute(config, torch.device("cpu"))
        usable = bool(torch.isfinite(frequencies).all())
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"rope_parameters={config.rope_parameters!r} cannot be used: {type(error).__name__}: {error}"
        ) from error
    if not usable:
        raise ConfigError(f"rope_parameters={config.rope_parameters!r} give frequencies that are no finite numbers")
