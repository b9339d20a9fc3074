"""Fixed settings of a bundle: stand-ins for a configuration and a module that raise for anything else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from zoo.fast.switches import FastPaths
from zoo.models.embedding import Position
from zoo.models.feed_forwards.balance import has_router_loss
from zoo.models.multi_token_prediction import prediction_depth
from zoo.models.parts import POSITIONS
from zoo.models.transformer import transformer_of
from zoo.registry import Registry


class OpenSettingError(Exception):
    """A bundle does not fix the setting that was read."""


class Settings:
    """A configuration with fixed settings; reading any other raises OpenSettingError.

    Args:
        config: The configuration.
        fixed: Values of the settings that may decide.

    Attributes:
        seen: Settings that were read since it was cleared.
        decided: Settings that decided something, by module and definition.
    """

    def __init__(self, config: Any, fixed: Mapping[str, Any]) -> None:
        self.config, self.fixed = config, fixed
        self.seen = set[str]()
        self.decided: dict[tuple[str, str], set[str]] = {}

    def __getattr__(self, name: str) -> Any:
        properties = {"stack": ("is_decoder", "is_encoder_decoder"), "mixer_layer_type": ("mixer",)}
        needed = properties.get(name, (name,))
        if not all(each in self.fixed for each in needed):
            raise OpenSettingError(name)
        self.seen.update(needed)
        return getattr(self.config, name, self.fixed.get(name))

    @property
    def rotates_anew(self) -> bool:
        """Whether the position part may rotate cached keys again in a longer text."""
        part: Any = POSITIONS.get(self.config.position)
        base: Any = Position
        return part.changes_after.__func__ is not base.changes_after.__func__

    def has_quirk(self, name: str) -> bool:
        return name in self.quirks


class KnownModule:
    """Stand-in for `self` in a module: its configuration, and for a stack its variant and positions."""

    can_unpad = False

    def __init__(self, config: Settings, empty: Collection[str]) -> None:
        self.config = config
        self.empty = empty

    def __getattr__(self, name: str) -> None:
        if name not in self.empty:
            raise OpenSettingError(name)

    @property
    def is_cross(self) -> bool:
        """False in a model without cross attention."""
        if self.config.add_cross_attention or self.config.is_encoder_decoder:
            raise OpenSettingError("is_cross")
        return False

    @property
    def position(self) -> Any:
        """Class attributes of a stack's position part."""
        if self.transformer.position is not None:
            raise OpenSettingError("position")
        part = POSITIONS.get(self.config.position)
        return SimpleNamespace(has_bias=part.has_bias, rotates=part.rotates)

    @property
    def transformer(self) -> Any:
        """The blueprint; reading it depends on the variant and its quirks."""
        self.config.seen.update(("variant", "quirks"))
        return transformer_of(self.config.config)


@cache
def known_names(module: str) -> dict[str, Any]:
    """Names that conditions on settings read in a module: registries, classes, functions of a configuration."""
    functions = (transformer_of, prediction_depth, has_router_loss)
    named = vars(import_module(module))
    known = {name: value for name, value in named.items() if isinstance(value, (Registry, type)) or value in functions}
    never = FastPaths(**{field.name: "never" for field in fields(FastPaths)})
    return {**known, "current": lambda: never, "getattr": getattr, "bool": bool}
