"""Suites that score a language model without training it, such as BLiMP's minimal pairs."""

from .results import ItemScore, SuiteResult, evaluate_suite
from .runs import SuiteRun
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
