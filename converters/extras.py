"""Packages that only some exports need."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import MissingExtraError


def require(extra: str, *modules: str) -> Any:
    """Import what an extra brings.

    Args:
        extra: The extra's name: "onnx", "ctranslate2", ...
        modules: Modules, the first of which is returned.

    Returns:
        The first module.

    Raises:
        MissingExtraError: When one of them is not installed, saying how to install all of them.
    """
    try:
        found = [importlib.import_module(module) for module in modules]
    except ImportError as error:
        raise MissingExtraError(extra, error.name or modules[0]) from error
    return found[0]
