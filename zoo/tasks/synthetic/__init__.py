"""Tasks that make their own examples, to study what architectures can learn."""

from .rules import Addition, AssociativeRecall, Copy, Induction, Reverse, Sort
from .task import Synthetic

__all__ = ["Addition", "AssociativeRecall", "Copy", "Induction", "Reverse", "Sort", "Synthetic"]
