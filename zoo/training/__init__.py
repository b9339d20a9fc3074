"""Training on transformers' trainer: recipes in, checkpoints and numbers out.

A name is imported when it is first used: what generates text is in a package of this one, and needs no trainer.
"""

from typing import TYPE_CHECKING

from zoo.base.lazy import lazy_names

if TYPE_CHECKING:
    from zoo.base.errors import UnwritableError

    from .after_steps import AfterSteps
    from .guard import TrainingError
    from .memory_check import PreflightError
    from .recipe import Recipe, load_recipe, shipped_recipes
    from .record import TrainingReport, TrainingResult
    from .saving import save_checkpoint
    from .training import ScoringError, train

_HOMES = {
    "AfterSteps": ".after_steps",
    "PreflightError": ".memory_check",
    "Recipe": ".recipe",
    "ScoringError": ".training",
    "TrainingError": ".guard",
    "TrainingReport": ".record",
    "TrainingResult": ".record",
    "UnwritableError": "zoo.base.errors",
    "load_recipe": ".recipe",
    "save_checkpoint": ".saving",
    "shipped_recipes": ".recipe",
    "train": ".training",
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

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
