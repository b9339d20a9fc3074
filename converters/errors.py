"""Every error that a conversion raises on purpose."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from zoo.base.errors import (
    CheckpointError,
    ConfigError,
    UnknownNameError,
    ZooError,
    ZooWarning,
    enumerate_names,
    suggest,
)

Shape = tuple[int, ...]


class ConversionError(ZooError, ValueError):
    """A checkpoint cannot be converted. Base of what follows."""


class UnknownConverterError(UnknownNameError, ConversionError):
    """No converter has this name."""

    kind = "converter"


class UnknownFormatError(ConversionError):
    """No converter recognises the keys of a checkpoint."""


class UnsafeFileError(ConversionError, CheckpointError):
    """A file holds more than tensors, or claims more of them than it has room for. Nothing of it was executed."""


class MissingHintError(ConversionError, ConfigError):
    """A checkpoint does not hold everything that a model needs."""

    def __init__(self, converter: str, missing: Mapping[str, str], example: str) -> None:
        self.missing = tuple(missing)
        names = ", ".join(f"{name} ({theirs})" for name, theirs in missing.items())
        super().__init__(
            f"a {converter} checkpoint does not have {names}: give it by name, for instance {example}, or on the "
            "command line with --set NAME=VALUE"
        )


class CheckpointKeysError(ConversionError, KeyError):
    """Keys of a checkpoint that do not fit its format, or have the wrong shape, all of them in one message."""

    def __init__(self, given: Mapping[str, Shape], expected: Mapping[str, Shape], owner: str) -> None:
        self.unknown = tuple(sorted(given.keys() - expected.keys()))
        self.missing = tuple(sorted(expected.keys() - given.keys()))
        self.misshapen = tuple(sorted(key for key in given.keys() & expected.keys() if given[key] != expected[key]))
        near = self.missing or expected
        parts = {
            "unknown": [f"{key}{suggest(key, near)}" for key in self.unknown],
            "missing": list(self.missing),
            "misshapen": [f"{key} has {given[key]}, should have {expected[key]}" for key in self.misshapen],
        }
        found = [f"{word} ({len(keys)}): {', '.join(keys)}" for word, keys in parts.items() if keys]
        super().__init__(f"keys do not fit a {owner} checkpoint; {' | '.join(found)}")

    def __str__(self) -> str:
        return str(self.args[0])


class NotConvertibleError(ConversionError):
    """A model of the zoo computes something that the other implementation does not."""

    def __init__(self, owner: str, differences: Iterable[str]) -> None:
        self.differences = tuple(differences)
        super().__init__(f"this model is not what {owner} computes: {enumerate_names(self.differences)}")


class NoCounterpartError(NotConvertibleError):
    """A model of transformers computes something that the zoo does not."""

    def __init__(self, name: str, lacks: Iterable[str]) -> None:
        self.differences = tuple(lacks)
        ConversionError.__init__(self, f"this {name} model has no counterpart: {'; '.join(self.differences)}")


class NotFiniteWarning(ZooWarning):
    """A checkpoint holds weights that are NaN or infinite."""


class NotComparedWarning(ZooWarning):
    """A converted model is too large to be compared with the native one at every length at which it changes."""


class LostInputWarning(ZooWarning):
    """A checkpoint distinguishes inputs, or has rates of dropout, that the model of the zoo does not have."""


class DifferentOutputsError(ConversionError):
    """A converted model does not compute what the native one does. It is not handed out."""

    def __init__(self, name: str, difference: float, allowed: float, side: str) -> None:
        super().__init__(
            f"the converted model's outputs differ from those of {name} by {difference:.2g} for inputs {side} "
            f"(rounding explains {allowed:.2g}): its configuration holds something that the zoo misreads; "
            "please report it with the config.json"
        )


class ExportError(ConversionError):
    """A model cannot be exported as asked."""


class VerificationError(ExportError):
    """An exported model does not compute what the original does. Nothing of it was kept."""


class MissingExtraError(ConversionError, ImportError):
    """An optional package is not installed."""

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(f"{module} is not installed; `pip install 'transformer-zoo[{extra}]'` brings it")


def require(extra: str, *modules: str) -> Any:
    """Import what an extra brings."""
    try:
        found = [importlib.import_module(module) for module in modules]
    except ImportError as error:
        raise MissingExtraError(extra, error.name or modules[0]) from error
    return found[0]
