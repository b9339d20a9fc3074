"""Training on transformers' trainer: recipes in, checkpoints and numbers out.

A name is imported when it is first used: what generates text is in a package of this one, and needs no trainer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.base.errors import UnwritableError

    from .after_steps import AfterSteps
    from .guard import TrainingError
    from .memory_check import PreflightError
    from .recipe import Recipe, load_recipe, shipped_recipes
    from .report import TrainingReport, TrainingResult
    from .saving import save_checkpoint
    from .training import ScoringError, train

_HOMES = {
    "AfterSteps": "zoo.training.after_steps",
    "PreflightError": "zoo.training.memory_check",
    "Recipe": "zoo.training.recipe",
    "ScoringError": "zoo.training.training",
    "TrainingError": "zoo.training.guard",
    "TrainingReport": "zoo.training.report",
    "TrainingResult": "zoo.training.report",
    "UnwritableError": "zoo.base.errors",
    "load_recipe": "zoo.training.recipe",
    "save_checkpoint": "zoo.training.saving",
    "shipped_recipes": "zoo.training.recipe",
    "train": "zoo.training.training",
}

__all__ = [
    "AfterSteps",
    "PreflightError",
    "Recipe",
    "ScoringError",
    "TrainingError",
    "TrainingReport",
    "TrainingResult",
    "UnwritableError",
    "load_recipe",
    "save_checkpoint",
    "shipped_recipes",
    "train",
]


def _look_up(name: str) -> Any:
    """Import a public name's home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


if not TYPE_CHECKING:
    __getattr__ = _look_up
