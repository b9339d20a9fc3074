"""Suites that score a language model without training it, such as BLiMP's minimal pairs."""

from .minimal_pairs import PairScore, SuiteResult, evaluate_suite
from .runs import SuiteRun
from .suite import SUITES, MinimalPair, Suite

__all__ = ["SUITES", "MinimalPair", "PairScore", "Suite", "SuiteResult", "SuiteRun", "evaluate_suite"]
