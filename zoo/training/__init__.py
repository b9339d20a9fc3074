"""Training on transformers' trainer: recipes in, checkpoints and numbers out."""

from zoo.base.errors import UnwritableError

from .after_steps import AfterSteps
from .guard import TrainingError
from .memory_check import PreflightError
from .recipe import Recipe, load_recipe, shipped_recipes
from .report import TrainingReport, TrainingResult
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
