"""What so many seeds can tell: the smallest difference, the seeds one needs, and whether two variants are alike."""

from __future__ import annotations

import math

from .distributions import increasing_inverse, power, student_quantile
from .statistics import ERROR, PairedDifference, equivalence_p

__all__ = ["detectable", "equivalence_p", "same_within", "seeds_needed", "smallest_difference"]

USUAL_POWER = 0.8
"""How often a difference is to be found (Cohen 1988)."""

MOST_SEEDS = 1000


def smallest_difference(deviation: float, seeds: int, tests: int = 1, chance: float = USUAL_POWER) -> float:
    """The smallest true difference that paired t-tests find with a given probability."""
    critical = student_quantile(1 - ERROR / 2 / tests, seeds - 1)
    shift = increasing_inverse(lambda shift: power(shift, critical, seeds - 1), chance)
    return shift * deviation / math.sqrt(seeds)


def seeds_needed(deviation: float, difference: float, tests: int = 1, chance: float = USUAL_POWER) -> int | None:
    """The seeds with which paired t-tests find a true difference with a given probability."""
    low, high = 1, 2
    while smallest_difference(deviation, high, tests, chance) > difference:
        if high > MOST_SEEDS:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = smallest_difference(deviation, middle, tests, chance) <= difference
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def detectable(difference: PairedDifference, chance: float = USUAL_POWER) -> float | None:
    """The smallest true difference that the same seeds would have shown, with a given probability.

    Of tests that are repeated with growing data, the last one alone is counted.
    """
    if difference.interval is None or not difference.deviation:
        return None
    error_of_mean = difference.deviation / math.sqrt(difference.pairs)
    critical = (difference.interval[1] - difference.mean) / error_of_mean
    return increasing_inverse(lambda shift: power(shift, critical, difference.pairs - 1), chance) * error_of_mean


def same_within(difference: PairedDifference, tests: int = 1) -> float | None:
    """The smallest margin within which two one-sided t-tests call a variant and the baseline the same."""
    if not difference.deviation:
        return None
    reach = student_quantile(1 - ERROR / tests, difference.pairs - 1)
    return abs(difference.mean) + reach * difference.deviation / math.sqrt(difference.pairs)
