"""Suites that score a language model without training it, such as BLiMP's minimal pairs."""

from .results import ItemScore, SuiteResult, SuiteRun, evaluate_suite
from .suite import SUITES, Choice, Item, MinimalPair, Option, Suite

__all__ = [
    "SUITES",
    "Choice",
    "Item",
    "ItemScore",
    "MinimalPair",
    "Option",
    "Suite",
    "SuiteResult",
    "SuiteRun",
    "evaluate_suite",
]
