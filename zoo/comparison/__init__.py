"""Comparison of variants: the same seed, data and budget, each in its own process.

Names are imported when they are used, so that the process which only loads a checkpoint imports no more than it needs.
"""

from typing import TYPE_CHECKING

from zoo.base.lazy import declared_in, lazy_names

if TYPE_CHECKING:
    from .display.documents import write_files
    from .display.formatting import records
    from .display.terminal import render, show
    from .pipeline import compare
    from .results.comparison import Comparison
    from .results.summary import ComparisonSummary, summarize
    from .run.record import ReloadCheck, Run

__all__ = [
    "Comparison",
    "ComparisonSummary",
    "ReloadCheck",
    "Run",
    "compare",
    "records",
    "render",
    "show",
    "summarize",
    "write_files",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, declared_in(__file__))
