"""Variants beside each other: the same seed, data and budget, each in a process of its own.

Names are imported when they are used, so that the process which only loads a checkpoint imports no more than it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparing import compare
    from .results import Comparison, ReloadCheck, Run
    from .table import render, show

_HOMES = {
    "Comparison": "results",
    "ReloadCheck": "results",
    "Run": "results",
    "compare": "comparing",
    "render": "table",
    "show": "table",
}

__all__ = ["Comparison", "ReloadCheck", "Run", "compare", "render", "show"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
