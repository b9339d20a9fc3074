"""Variants beside each other: the same seed, data and budget, each in a process of its own.

Names are imported when they are used, so that the process which only loads a checkpoint imports no more than it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparing import compare
    from .results import Comparison, ReloadCheck, Run
    from .summary import Summary, summarize
    from .table import render, show
    from .tabular import records
    from .writing import write_files

_HOMES = {
    "Comparison": "results",
    "ReloadCheck": "results",
    "Run": "results",
    "compare": "comparing",
    "records": "tabular",
    "render": "table",
    "show": "table",
    "Summary": "summary",
    "summarize": "summary",
    "write_files": "writing",
}

__all__ = [
    "Comparison",
    "ReloadCheck",
    "Run",
    "Summary",
    "compare",
    "records",
    "render",
    "show",
    "summarize",
    "write_files",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
