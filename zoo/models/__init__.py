"""Everything a saved checkpoint needs to run: configuration, parts, stacks, wrapper and heads."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import *  # noqa: F403


def _look_up(name: str) -> Any:
    """Import all modules when a public name or a module is first used: tables of parts are read without torch."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    api = importlib.import_module(f"{__name__}.api")
    here = vars(sys.modules[__name__])
    if name in here:
        return here[name]
    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted(importlib.import_module(f"{__name__}.api").__all__)


if not TYPE_CHECKING:
    __getattr__ = _look_up
