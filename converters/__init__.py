"""Checkpoints of other implementations, in and out.

Importing this package is cheap: torch and transformers are imported when a name that needs them is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conversion import convert, convert_back, sniff
    from .converter import CONVERTERS, Converter, Plan
    from .key_map import KeyMap

_HOMES = {
    "CONVERTERS": "converter",
    "Converter": "converter",
    "KeyMap": "key_map",
    "Plan": "converter",
    "convert": "conversion",
    "convert_back": "conversion",
    "sniff": "conversion",
}

__all__ = ["CONVERTERS", "Converter", "KeyMap", "Plan", "convert", "convert_back", "sniff"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zoo.converters' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"zoo.converters.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
