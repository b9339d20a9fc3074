"""Training on transformers' trainer: recipes in, checkpoints and numbers out."""

from .progress import TrainingError
from .recipe import Recipe, load_recipe, shipped_recipes
from .report import TrainingReport, TrainingResult
from .saving import save_checkpoint
from .training import train

__all__ = [
    "Recipe",
    "TrainingError",
    "TrainingReport",
    "TrainingResult",
    "load_recipe",
    "save_checkpoint",
    "shipped_recipes",
    "train",
]
