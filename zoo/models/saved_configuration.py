"""Reading a saved configuration, for zoo.load, an Auto class and the zoo's own classes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from zoo.base.errors import CheckpointError, ConfigError

FOREIGN = ("attn_implementation", "experts_implementation", "transformers_weights")
"""Keys that transformers never writes into a configuration, but obeys there: to read other weights, to fetch code."""

WITHOUT_FIELD = (
    *("model_type", "auto_map", "name_or_path", "_name_or_path", "num_labels", "output_attentions"),
    *("rope_scaling", "torch_dtype", "per_layer_config"),
)
"""Keys of saved configurations of transformers that are no fields of the class but set by its properties."""

DEEPEST = 50
"""Levels of a configuration, which what reads and copies it goes down one by one."""


class SavedConfig(PreTrainedConfig):
    """A configuration that is checked when it is read."""

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a configuration as transformers does, but for one that is nested too deeply to be read."""
        try:
            return super().get_config_dict(*args, **kwargs)
        except RecursionError as error:
            raise CheckpointError(f"the configuration of {args[0]} is nested too deeply to be one") from error

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Make a configuration of what was saved. Arguments win over it, and are checked as it is."""
        if depth_of(config_dict) > DEEPEST:
            raise ConfigError(f"it is nested more than {DEEPEST} levels deep, so it is no configuration")
        for name, value in config_dict.items():
            if (name in FOREIGN and value is not None) or cls.is_its_own(name):
                raise ConfigError(f"{name}={value!r} was found in a saved configuration, which cannot have that")
        named = config_dict.get("auto_map") or {}
        if not (isinstance(named, dict) and all(isinstance(value, (str, list)) for value in named.values())):
            raise ConfigError(f"auto_map={named!r} was found; it must be an object of names of classes")
        saved = {name: value for name, value in config_dict.items() if name not in FOREIGN}
        own = {field.name for field in fields(cls)} - {field.name for field in fields(PreTrainedConfig)}
        given = {name: kwargs.pop(name) for name in own & kwargs.keys()}
        return super().from_dict({**saved, **given}, **kwargs)

    @classmethod
    def is_its_own(cls, name: str) -> bool:
        """Whether a name is a method, a property or a private part of the class, and no setting."""
        settings = {*(field.name for field in fields(cls)), *WITHOUT_FIELD, *cls.attribute_map}
        return name not in settings and (name.startswith("_") or hasattr(cls, name))


def depth_of(value: Any) -> int:
    """How deeply data is nested, as far as it matters."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        nested = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [
            inner for values in nested if not isinstance(values, (str, int, float, type(None))) for inner in values
        ]
        depth += 1
    return depth
