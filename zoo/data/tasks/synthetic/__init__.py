"""Tasks that make their own examples, to study what architectures can learn."""

from .compression import Compression
from .recall import InContextRecall, Memorization, MultiQueryRecall, SelectiveCopying
from .rules import Addition, AlignedAddition, AssociativeRecall, Copy, Induction, ModularAddition, Reverse, Sort
from .task import Synthetic

__all__ = [
    "Addition",
    "AlignedAddition",
    "AssociativeRecall",
    "Compression",
    "Copy",
    "InContextRecall",
    "Induction",
    "Memorization",
    "ModularAddition",
    "MultiQueryRecall",
    "Reverse",
    "SelectiveCopying",
    "Sort",
    "Synthetic",
]
