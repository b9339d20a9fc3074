"""Packages that only some exports need."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import MissingExtraError


def require(extra: str, *modules: str) -> Any:
    """Import what an extra brings."""
    try:
        found = [importlib.import_module(module) for module in modules]
    except ImportError as error:
        raise MissingExtraError(extra, error.name or modules[0]) from error
    return found[0]
