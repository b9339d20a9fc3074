"""Statistics of repeated runs: spread, intervals, and differences that are paired by seed.

Few seeds are the rule, so everything here is exact for few: the bootstrap goes through all resamples instead of drawing
some, and Student's distribution is evaluated in its closed form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import NormalDist, median_low
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..request.seeds import FEWEST_SEEDS
from .distributions import increasing_inverse, power, student_quantile, student_within

__all__ = ["detectable", "equivalence_p", "same_within", "seeds_needed", "smallest_difference"]

USUAL_POWER = 0.8  # How often a difference is to be found (Cohen 1988)

MOST_SEEDS = 1000

T = TypeVar("T")


def pareto_front(found: Sequence[T], gains: Callable[[T], tuple[float, float]]) -> list[T]:
    """Find what nothing else beats in one gain without losing in the other; equal ones are in it together."""
    every = [gains(one) for one in found]
    return [
        one
        for one, own in zip(found, every, strict=True)
        if not any(other != own and other[0] >= own[0] and other[1] >= own[1] for other in every)
    ]


def smallest_difference(deviation: float, seeds: int, tests: int = 1) -> float:
    """The smallest true difference that paired t-tests find with the usual probability."""
    critical = student_quantile(1 - ERROR / 2 / tests, seeds - 1)
    shift = increasing_inverse(lambda shift: power(shift, critical, seeds - 1), USUAL_POWER)
    return shift * deviation / math.sqrt(seeds)


def seeds_needed(deviation: float, difference: float, tests: int = 1) -> int | None:
    """The seeds with which paired t-tests find a true difference with the usual probability."""
    low, high = 1, 2
    while smallest_difference(deviation, high, tests) > difference:
        if high > MOST_SEEDS:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = smallest_difference(deviation, middle, tests) <= difference
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def detectable(difference: PairedDifference) -> float | None:
    """The smallest true difference that the same seeds would have shown, with the usual probability."""
    if difference.interval is None or not difference.deviation:
        return None
    error_of_mean = difference.deviation / math.sqrt(difference.pairs)
    critical = (difference.interval[1] - difference.mean) / error_of_mean
    return increasing_inverse(lambda shift: power(shift, critical, difference.pairs - 1), USUAL_POWER) * error_of_mean


def same_within(difference: PairedDifference, tests: int = 1) -> float | None:
    """The smallest margin within which two one-sided t-tests call a variant and the baseline the same."""
    if not difference.deviation:
        return None
    reach = student_quantile(1 - ERROR / tests, difference.pairs - 1)
    return abs(difference.mean) + reach * difference.deviation / math.sqrt(difference.pairs)


LEVEL = 0.95  # Of intervals
ERROR = 0.05  # That tests allow over all variants together
MOST_ENUMERATED = 6  # Largest number of values with exhaustive resamples: 6 ** 6 are 46,656
RESAMPLES = 20_000  # Number of resamples with more values
ROUNDING = 1e-12  # The relative error of sums of a few values, at most

BETTER, WORSE, SAME = "better", "worse", "the same"
"""Verdicts that decide; "the same" is within a margin that was named before."""

DECIDED = (BETTER, WORSE, SAME)

NOISE, UNDECIDED, UNKNOWN = "within noise", "undecided", "untested"
"""Verdicts that do not: of a fixed number of seeds, of seeds that are added until a limit, of fewer than three."""

EQUAL = "equal"  # In place of "within noise", where the numbers of every seed are the same, so that nothing spreads

EDGE = "undecided by edge"
"""In place of a verdict that decides, where a best swept value is the least or the greatest that was tried."""


@dataclass(frozen=True)
class Measurements:
    """Statistics of a number that was measured once per seed, computed on demand."""

    values: Sequence[float]

    @cached_property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    @cached_property
    def deviation(self) -> float | None:
        """Their sample standard deviation, with n - 1; None of a single value."""
        return spread(self.values) if len(self.values) > 1 else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Where the mean is to be expected, see [`bootstrap_interval`][]; None of a single value."""
        return bootstrap_interval(self.values) if len(self.values) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        return {"values": self.values, "mean": self.mean, "deviation": self.deviation, "interval": self.interval}


@dataclass(frozen=True)
class Pairs:
    """The scores of a variant and of the baseline, seed by seed."""

    differences: Sequence[float]  # Variant minus baseline, for every seed with which both have a number
    lost: int = 0  # Seeds with which the baseline has a number and the variant has none: its run failed, or diverged
    baseline_lost: int = 0  # Seeds with which it is the other way round
    better: int = 1  # 1 where more is better, -1 where less is


@dataclass(frozen=True)
class PairedDifference:
    """How a variant differs from the baseline over the seeds that both have."""

    mean: float  # Mean difference, variant minus baseline
    deviation: float | None  # Sample standard deviation of the differences; None of a single one
    # Student's interval for the mean difference. After correction it has the level at which it excludes zero just where
    # `adjusted` is below 0.05; where `sameness` is below 0.05, the level at which it lies within the margin. None where
    # sizes are not tested: with fewer than three seeds, where runs were lost, and where nothing spreads.
    interval: tuple[float, float] | None
    effect: float | None  # The mean in units of the deviation, Cohen's d_z; None without a deviation
    pairs: int  # Number of seeds
    p: float | None  # Of the paired t-test, or of the sign test where runs were lost; None with fewer than three seeds
    adjusted: float | None = None  # The same after correction, see `compare_all`
    wins: int = 0  # Seeds on which the variant is better; the baseline's lost runs count among them
    losses: int = 0  # Seeds on which it is worse; its own lost runs count among them
    # Corrected p-value of two one-sided tests that the true difference is within the margin; None without a margin, and
    # where sizes are not tested
    sameness: float | None = None
    lost: int = 0  # Seeds without a pair, as a run of either failed
    better: int = 1  # 1 where more is better, -1 where less is

    @classmethod
    def of(cls, paired: Pairs) -> PairedDifference:
        """Test whether paired differences come from zero."""
        differences = paired.differences
        pairs, mean = len(differences), math.fsum(differences) / len(differences)
        wins = sum(one * paired.better > 0 for one in differences) + paired.baseline_lost
        losses = sum(one * paired.better < 0 for one in differences) + paired.lost
        deviation = spread(differences) if pairs > 1 else None
        effect = mean / deviation if deviation else None
        lost = paired.lost + paired.baseline_lost
        counts = {"wins": wins, "losses": losses, "lost": lost, "better": paired.better}
        if pairs == 1 or pairs + lost < FEWEST_SEEDS:
            return cls(mean, deviation, None, effect, pairs, None, **counts)
        p = sign_p(wins, losses) if lost else paired_p(differences)
        interval = student_interval(differences) if deviation and not lost else None
        return cls(mean, deviation, interval, effect, pairs, p, **counts)

    @property
    def is_by_size(self) -> bool:
        """Whether sizes are tested, and not signs alone."""
        return self.interval is not None

    @property
    def is_better(self) -> bool:
        """Whether the variant is better: by its mean, or where signs are tested, with more seeds than not."""
        return self.mean * self.better > 0 if self.is_by_size else self.wins > self.losses

    @property
    def is_equal(self) -> bool:
        """Whether variant and baseline have the same number with every seed."""
        return not (self.mean or self.deviation or self.lost)

    @property
    def decisive(self) -> float | None:
        """The corrected p-value of the test that decides; below 0.05 exactly with a verdict."""
        return self.sameness if self.is_same else self.adjusted

    @property
    def is_same(self) -> bool:
        """Whether the true difference is found to be within the margin."""
        return self.sameness is not None and self.sameness < ERROR

    def corrected(self, adjusted: float, error: float | None = None) -> PairedDifference:
        """Set the corrected p-value and the interval for `error`, by default the level of Holm's correction."""
        if error is None and self.p is not None:
            error = ERROR * (self.p / adjusted if adjusted else 1.0)
        return replace(self, adjusted=adjusted, interval=self.interval_at(error or ERROR))

    def interval_at(self, error: float) -> tuple[float, float] | None:
        """Student's interval that misses the mean with a given probability; None where sizes are not tested."""
        if self.interval is None or not self.deviation:
            return None
        reach = student_quantile(1 - error / 2, self.pairs - 1) * self.deviation / math.sqrt(self.pairs)
        return self.mean - reach, self.mean + reach

    def against(self, error: float, margin: float | None = None, same_error: float | None = None) -> PairedDifference:
        """Correct p-values so that they are below `ERROR` exactly if the uncorrected ones are below their limits."""
        if self.p is None:
            return self
        found = self.corrected(min(1.0, self.p * ERROR / error), error)
        return found if margin is None else found.within(margin, same_error or error)

    def within(self, margin: float, error: float) -> PairedDifference:
        """Test whether the true difference is within a margin; `sameness` is below `ERROR` if p is below `error`."""
        if self.p is None or self.lost:
            return self
        found = replace(self, sameness=min(1.0, equivalence_p(self, margin) * ERROR / error))
        return replace(found, interval=self.interval_at(2 * error)) if found.is_same else found


def equivalence_p(difference: PairedDifference, margin: float) -> float:
    """The p-value of two one-sided paired t-tests (Schuirmann 1987) that a mean difference lies within a margin.

    Where nothing spreads, it is that of a sign test: at a true difference of the margin, half of all would exceed it.
    """
    if not difference.deviation:
        return 0.5**difference.pairs if abs(difference.mean) < margin else 1.0
    distance = (margin - abs(difference.mean)) / difference.deviation * math.sqrt(difference.pairs)
    tail = (1 - student_within(abs(distance), difference.pairs - 1)) / 2
    return tail if distance > 0 else 1 - tail


def verdict(difference: PairedDifference, otherwise: str = NOISE) -> str:
    """Verdict of a difference, or "undecided"."""
    if difference.adjusted is None:
        return UNKNOWN
    if difference.is_same:
        return SAME
    if difference.adjusted >= ERROR:
        return EQUAL if difference.is_equal and otherwise == NOISE else otherwise
    return BETTER if difference.is_better else WORSE


def compare_all(paired: Sequence[Pairs], margin: float | None = None, others: int = 0) -> list[PairedDifference]:
    """Test variants against one baseline, corrected for the number of those that could be tested.

    `others` are tests elsewhere that share the error, each with at most its equal part.

    Without a margin, Holm's correction. With one, every variant has an equal share of the error, which covers both of
    its tests: a true difference is either less than the margin or not zero, so only one of them can be wrong.
    """
    found = [PairedDifference.of(pairs) for pairs in paired]
    p_values = [difference.p for difference in found if difference.p is not None]
    if margin is not None:
        return [one.against(ERROR / max(1, len(p_values) + others), margin) for one in found]
    adjusted = iter(holm([*p_values, *[1.0] * others]))
    return [one if one.p is None else one.corrected(next(adjusted)) for one in found]


def typical_spread(differences: Sequence[PairedDifference]) -> tuple[float, int, int] | None:
    tested = [one for one in differences if one.p is not None and one.deviation is not None]
    if not any(one.deviation for one in tested):
        return None
    deviation = math.sqrt(math.fsum((one.deviation or 0.0) ** 2 for one in tested) / len(tested))
    return deviation, median_low([one.pairs for one in tested]), len(tested)


def paired_p(differences: Sequence[float]) -> float:
    """The p-value of the two-sided paired t-test (Student 1908)."""
    mean, deviation = math.fsum(differences) / len(differences), spread(differences)
    if deviation == 0:
        return sign_p(len(differences), 0) if mean else 1.0
    return 1 - student_within(abs(mean) / deviation * math.sqrt(len(differences)), len(differences) - 1)


def sign_p(wins: int, losses: int) -> float:
    """The p-value of the two-sided sign test (Arbuthnot 1710): as many heads or tails of a fair coin, or more."""
    tosses = wins + losses
    tail = sum(math.comb(tosses, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**tosses)


def spread(values: Sequence[float]) -> float:
    """The sample standard deviation of at least two values, zero if values differ by rounding only."""
    deviation = float(np.std(values, ddof=1))
    return deviation if deviation > ROUNDING * max(map(abs, values)) else 0.0


def student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's interval of the mean, exact for normal noise and any number of values."""
    mean = math.fsum(values) / len(values)
    reach = student_quantile((1 + LEVEL) / 2, len(values) - 1) * spread(values) / math.sqrt(len(values))
    return mean - reach, mean + reach


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """The expanded percentile interval of the mean (Efron 1979; Hesterberg 2015)."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    means = ordered[resamples(n)].mean(axis=1)
    tail = NormalDist().cdf(-math.sqrt(n / (n - 1)) * student_quantile((1 + LEVEL) / 2, n - 1))
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


@cache
def resamples(n: int) -> NDArray[np.int64]:
    """Choose n of n places with replacement: all ways, or `RESAMPLES` drawn with a fixed seed."""
    if n <= MOST_ENUMERATED:
        return np.array(list(itertools.product(range(n), repeat=n)))
    return np.random.default_rng(0).integers(n, size=(RESAMPLES, n))


def most_coverage(seeds: int) -> float:
    """How often a bootstrap interval of symmetric noise holds the mean at best: 0.75 of three seeds, 0.94 of five."""
    return 1 - 2.0 ** (1 - seeds)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number, so that the level bounds the probability of any false alarm (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
