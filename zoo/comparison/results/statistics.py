"""What repeated runs say: spread, intervals, and differences that are paired by seed.

Few seeds are the rule, so everything here is exact for few: the bootstrap goes through all resamples instead of drawing
some, and Student's distribution is evaluated in its closed form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import NormalDist, median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .distributions import student_quantile, student_within

LEVEL = 0.95
"""Of intervals; and 1 - LEVEL is the error that tests allow over all variants together."""

FEWEST_SEEDS = 3
"""Seeds from which on a difference is tested."""

MOST_ENUMERATED = 6
"""Values of which all resamples are gone through: 6 ** 6 are 46,656."""

RESAMPLES = 20_000
"""Drawn where there are more values."""

ROUNDING = 1e-12
"""The relative error of sums of a few values, at most."""

BETTER, WORSE, NOISE, UNKNOWN = "better", "worse", "within noise", "untested"
"""What is said of a difference from the baseline."""


@dataclass(frozen=True)
class Measurements:
    """What is known of a number that was measured once a seed: computed when asked for, as few columns are.

    Attributes:
        values: The measurements.
    """

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Measurements:
        """Summarise at least one measurement."""
        return cls(tuple(values))

    @cached_property
    def mean(self) -> float:
        """Their mean."""
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
        """Write them as plain data, with what is computed of them."""
        return {"values": self.values, "mean": self.mean, "deviation": self.deviation, "interval": self.interval}


@dataclass(frozen=True)
class Pairs:
    """The scores of a variant and of the baseline, seed by seed.

    Attributes:
        differences: Variant minus baseline, for every seed with which both have a number.
        lost: Seeds with which the baseline has a number and the variant has none: its run failed, or diverged.
        baseline_lost: Seeds with which it is the other way round.
        better: 1 where more is better, -1 where less is.
    """

    differences: Sequence[float]
    lost: int = 0
    baseline_lost: int = 0
    better: int = 1


@dataclass(frozen=True)
class PairedDifference:
    """How a variant differs from the baseline over the seeds that both have.

    Attributes:
        mean: Mean difference, variant minus baseline.
        deviation: Sample standard deviation of the differences; None of a single one.
        interval: Student's interval for the mean difference. After correction it has the level at which it excludes
            zero just where `adjusted` is below 0.05. None where sizes are not tested: with fewer than three seeds,
            where runs were lost, and where nothing spreads.
        effect: The mean in units of the deviation, Cohen's d_z; None where there is no deviation.
        pairs: Number of seeds.
        p: Of the paired t-test, or of the sign test where runs were lost; None with fewer than three seeds.
        adjusted: The same after Holm's correction, see [`holm`][].
        wins: Seeds on which the variant is better; the baseline's lost runs count among them.
        losses: Seeds on which it is worse; its own lost runs count among them.
    """

    mean: float
    deviation: float | None
    interval: tuple[float, float] | None
    effect: float | None
    pairs: int
    p: float | None
    adjusted: float | None = None
    wins: int = 0
    losses: int = 0

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
        if pairs == 1 or pairs + lost < FEWEST_SEEDS:
            return cls(mean, deviation, None, effect, pairs, None, wins=wins, losses=losses)
        p = sign_p(wins, losses) if lost else paired_p(differences)
        interval = student_interval(differences) if deviation and not lost else None
        return cls(mean, deviation, interval, effect, pairs, p, wins=wins, losses=losses)

    def corrected(self, adjusted: float) -> PairedDifference:
        """Set the corrected p-value, and the interval that says the same."""
        interval = self.interval
        if interval is not None and self.deviation and self.p is not None:
            level = 1 - (1 - LEVEL) * (self.p / adjusted if adjusted else 1.0)
            reach = student_quantile((1 + level) / 2, self.pairs - 1) * self.deviation / math.sqrt(self.pairs)
            interval = (self.mean - reach, self.mean + reach)
        return replace(self, adjusted=adjusted, interval=interval)


def verdict(difference: PairedDifference) -> str:
    """Say in words what a difference means."""
    if difference.adjusted is None:
        return UNKNOWN
    if difference.adjusted >= 1 - LEVEL:
        return NOISE
    return BETTER if difference.wins > difference.losses else WORSE


def compare_all(paired: Sequence[Pairs]) -> list[PairedDifference]:
    """Test variants against one baseline, corrected for the number of those that could be tested."""
    found = [PairedDifference.of(pairs) for pairs in paired]
    adjusted = iter(holm([difference.p for difference in found if difference.p is not None]))
    return [one if one.p is None else one.corrected(next(adjusted)) for one in found]


def typical_spread(differences: Sequence[PairedDifference]) -> tuple[float, int, int] | None:
    """Describe how differences spread on average."""
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
    """The sample standard deviation of at least two values, zero where nothing but rounding makes one."""
    deviation = float(np.std(values, ddof=1))
    return deviation if deviation > ROUNDING * max(map(abs, values)) else 0.0


def student_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """Student's interval of the mean, exact for normal noise and any number of values."""
    mean = math.fsum(values) / len(values)
    reach = student_quantile((1 + level) / 2, len(values) - 1) * spread(values) / math.sqrt(len(values))
    return mean - reach, mean + reach


def bootstrap_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The expanded percentile interval of the mean (Efron 1979; Hesterberg 2015)."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    means = ordered[resamples(n)].mean(axis=1)
    tail = NormalDist().cdf(-math.sqrt(n / (n - 1)) * student_quantile((1 + level) / 2, n - 1))
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


@cache
def resamples(n: int) -> NDArray[np.int64]:
    """Choose n of n places with replacement: all ways that there are, or `RESAMPLES` drawn always alike."""
    if n <= MOST_ENUMERATED:
        return np.array(list(itertools.product(range(n), repeat=n)))
    return np.random.default_rng(0).integers(n, size=(RESAMPLES, n))


def most_coverage(seeds: int) -> float:
    """How often a bootstrap interval of symmetric noise holds the mean at best: 0.75 of three seeds, 0.94 of five."""
    return 1 - 2.0 ** (1 - seeds)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number, so that one false alarm among all is as rare as the level says (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
