"""Training on transformers' trainer: recipes in, checkpoints and numbers out.

A name is imported when it is first used: what generates text is in a package of this one, and needs no trainer.
"""

from typing import TYPE_CHECKING

from zoo.base.lazy import declared_in, lazy_names

if TYPE_CHECKING:
    from zoo.base.errors import UnwritableError

    from .after_steps import AfterSteps
    from .guard import TrainingError
    from .preflight import PreflightError
    from .recipe import Recipe, load_recipe, shipped_recipes
    from .record import TrainingReport, TrainingResult
    from .saving import save_checkpoint
    from .training import ScoringError, train

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
    __getattr__ = lazy_names(__name__, declared_in(__file__))
