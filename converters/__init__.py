"""Checkpoints of other implementations, in and out.

Importing this package is cheap: torch and transformers are imported when a name that needs them is first used.
"""

from typing import TYPE_CHECKING

from zoo.base.lazy import lazy_names

if TYPE_CHECKING:
    from .conversion import convert, convert_back, sniff
    from .converter import CONVERTERS, Converter, Plan
    from .exporting import ExportReport, export
    from .key_map import KeyMap
    from .planning import plan_engines, plan_export
    from .target import TARGETS, EngineTarget, ExportOptions, Target, TargetPlan

_MODULES = {
    ".conversion": ("convert", "convert_back", "sniff"),
    ".converter": ("CONVERTERS", "Converter", "Plan"),
    ".exporting": ("ExportReport", "export"),
    ".key_map": ("KeyMap",),
    ".planning": ("plan_engines", "plan_export"),
    ".target": ("EngineTarget", "ExportOptions", "TARGETS", "Target", "TargetPlan"),
}

__all__ = [
    "CONVERTERS",
    "TARGETS",
    "Converter",
    "EngineTarget",
    "ExportOptions",
    "ExportReport",
    "KeyMap",
    "Plan",
    "Target",
    "TargetPlan",
    "convert",
    "convert_back",
    "export",
    "plan_engines",
    "plan_export",
    "sniff",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)
