"""A second reading of the seeds: noise pooled over all variants, and Dunnett's test against the baseline.

The paired test estimates each variant's noise from its own few differences. Where the noise of all variants may be
alike, what is left of all scores without the means of variants and of seeds estimates it with (variants - 1) times as
many degrees of freedom, so that the same seeds tell much smaller differences. To set unsteady variants aside and pool
the rest would be no help: where half of eight are three times as noisy, simulation gives 18 % of false verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from .distributions import Array, all_within, largest_quantile
from .statistics import LEVEL, ROUNDING

ALIKE = 0.75
"""The share of comparisons with equal noise that are taken for such: a preliminary test must refuse readily (Bancroft
1964)."""

SIMULATED = 2000
"""Comparisons with equal noise by which the spreads of variants are judged."""


@dataclass(frozen=True)
class PooledTest:
    """What the pooled noise says of every variant.

    Attributes:
        deviation: Standard deviation of a score, apart from its variant and its seed.
        freedom: Degrees of freedom of the deviation.
        differences: Each variant's mean difference from the baseline.
        smallest: The smallest difference that is told from noise.
        seeds: Scores of each variant.
    """

    deviation: float
    freedom: int
    differences: dict[str, float]
    smallest: float
    seeds: int

    @property
    def told(self) -> list[str]:
        """The variants that differ beyond noise."""
        return [name for name, difference in self.differences.items() if abs(difference) > self.smallest]

    def p(self, name: str) -> float:
        """A variant's two-sided p-value by Dunnett's test, which corrects for the number of variants."""
        t = abs(self.differences[name]) / (self.deviation * math.sqrt(2 / self.seeds))
        return 1 - all_within(t, len(self.differences), self.freedom)


def pooled_over(scores: Mapping[str, Mapping[int, float | None]], baseline: str) -> PooledTest | None:
    """Test all variants that have a number with every seed of the baseline.

    Args:
        scores: Every variant's score by seed, None where a run failed or diverged.
        baseline: The baseline's name.

    Returns:
        As [`pooled_test`][]; None, too, where the baseline lacks a number.
    """
    seeds = sorted(scores.get(baseline, ()))
    columns = {name: [own.get(seed) for seed in seeds] for name, own in scores.items()}
    whole = {name: [one for one in own if one is not None] for name, own in columns.items() if None not in own}
    return pooled_test(whole, baseline) if baseline in whole else None


def pooled_test(scores: Mapping[str, Sequence[float]], baseline: str) -> PooledTest | None:
    """Test all variants against a baseline by Dunnett's test with the residual of variants and seeds.

    Args:
        scores: Every variant's scores, the baseline's among them, each in the same order of seeds.
        baseline: The baseline's name.

    Returns:
        The test; None where there are less than two variants beside the baseline or less than two seeds, where nothing
        spreads, or where the noise of variants is not alike.
    """
    others = [name for name in scores if name != baseline]
    table = np.array([scores[name] for name in (baseline, *others)], dtype=np.float64)
    if len(others) < 2 or table.shape[1] < 2:
        return None
    residual = without_means(table)
    freedom = len(others) * (table.shape[1] - 1)
    deviation = math.sqrt(float((residual**2).sum()) / freedom)
    if deviation <= ROUNDING * np.abs(table).max() or unevenness(residual) > most_uneven(*table.shape):
        return None
    means = table.mean(axis=1)
    return PooledTest(
        deviation=deviation,
        freedom=freedom,
        differences={name: float(mean - means[0]) for name, mean in zip(others, means[1:], strict=True)},
        smallest=largest_quantile(LEVEL, len(others), freedom) * deviation * math.sqrt(2 / table.shape[1]),
        seeds=table.shape[1],
    )


def without_means(table: Array) -> Array:
    """Take the means of rows and of columns out of tables. *Shape:* (..., variants, seeds)."""
    rows, columns = table.mean(axis=-1, keepdims=True), table.mean(axis=-2, keepdims=True)
    return table - rows - columns + table.mean(axis=(-2, -1), keepdims=True)


def unevenness(residual: Array) -> Array:
    """The largest variant's share of all squared residuals (Cochran 1941). *Shape:* (..., variants, seeds) to (...)."""
    squares = (residual**2).sum(axis=-1)
    return np.asarray(squares.max(axis=-1) / squares.sum(axis=-1))


@cache
def most_uneven(variants: int, seeds: int) -> float:
    """The share of one variant up to which noise is taken for alike, by simulation."""
    noise = np.random.default_rng(0).normal(size=(SIMULATED, variants, seeds))
    return float(np.quantile(unevenness(without_means(noise)), ALIKE))
