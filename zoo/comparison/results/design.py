"""How verdicts are reached: what counts as nothing, when seeds are added, and the p-values of each look."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np

from ..request.seeds import FEWEST_SEEDS
from .distributions import Array, students_within
from .statistics import (
    DECIDED,
    ERROR,
    NOISE,
    ROUNDING,
    UNDECIDED,
    UNKNOWN,
    Measurements,
    PairedDifference,
    Pairs,
    compare_all,
    verdict,
)

EDGES = np.sinh(np.linspace(-11, 11, 451))  # Edges of the grid of t: p-values of 1e-9 lie on it

MIDDLES = np.sinh((np.arcsinh(EDGES[1:]) + np.arcsinh(EDGES[:-1])) / 2)


def spent(seeds: int, limit: int) -> float:
    """The share of the error that is spent after some seeds of a limit; nothing before the third."""
    return (min(seeds, limit) / limit) ** 2 if seeds >= FEWEST_SEEDS else 0.0


def increment(error: float, seeds: int, limit: int) -> float:
    """The error that one look spends: a valid level of any test, which joint distributions do not raise."""
    return error * (spent(seeds, limit) - spent(seeds - 1, limit))


@cache
def levels(error: float, limit: int, sides: int) -> tuple[float, ...]:
    """P-values that decide at each look, on one or two sides: after three seeds, after one more, and so on.

    Lan and DeMets (1983) spend the error by the share of the data that is there; the share is squared here (Kim and
    DeMets 1987). The levels are those of t-tests of normal differences. T, the sum of n of these over the root of their
    sum of squares, is a Markov chain: the root is independent of all T so far (Basu 1955), so the next T depends on
    this one and on a number that is Student's. The distribution of T is carried from look to look on a grid.
    """
    found = []
    mass = np.zeros(len(MIDDLES))
    for seeds in range(FEWEST_SEEDS, limit + 1):
        is_first = seeds == FEWEST_SEEDS
        below = student_below(EDGES, seeds - 1) if is_first else mass @ transitions(seeds - 1)
        below = below - below[0]
        critical = -float(np.interp(increment(error, seeds, limit) / sides, below, EDGES))
        tail = (1 - float(students_within(np.float64(critical), seeds - 1))) / 2
        found.append(sides * tail)
        inside = np.clip((EDGES[1:] + critical) / np.diff(EDGES), 0.0, 1.0)
        mass = np.diff(below) * (inside * inside[::-1] if sides == 2 else inside)
    return tuple(found)


@cache
def transitions(seeds: int) -> Array:
    """The probability that t is below each edge after one more seed, for each t of `MIDDLES` after some seeds.

    With v Student's over the root of the number of seeds, the next T is (T + v) / sqrt(1 + v²), which is b where
    (1 - b²) v² + 2 T v + T² - b² = 0.
    """
    now = sum_over_root(MIDDLES, seeds)[:, None]
    b = sum_over_root(EDGES, seeds + 1)[None, :]
    discriminant = now**2 + 1 - b**2
    root = b * np.sqrt(np.maximum(discriminant, 0.0))
    first, second = (-now - root) / (1 - b**2), (-now + root) / (1 - b**2)
    below_first, below_second = (student_below(v * math.sqrt(seeds), seeds) for v in (first, second))
    misses = [np.abs(now + v - b * np.sqrt(1 + v**2)) for v in (first, second)]
    one_root = np.where(misses[0] < misses[1], below_first, below_second)
    between = np.abs(below_first - below_second)
    inner = np.where(np.abs(b) < 1, one_root, np.where(b > 0, 1 - between, between))
    never = (discriminant <= 0) | ((np.abs(b) >= 1) & (now * b <= 0))
    return np.where(never, (b > 0).astype(float), inner)


def sum_over_root(t: Array, seeds: int) -> Array:
    """T for a t with these degrees of freedom."""
    return t * math.sqrt(seeds) / np.sqrt(seeds - 1 + t**2)


def student_below(t: Array, freedom: int) -> Array:
    """The probability that Student's t lies below values."""
    return (1 + students_within(t, freedom)) / 2


@dataclass(frozen=True)
class Design:
    """Rules for verdicts, settled before any results."""

    # The largest difference of the score that decides which counts as none; None for no verdict "the same"
    margin: float | None = None
    # The most seeds of a variant, where undecided ones get another seed until they are decided; None where all have the
    # same number
    limit: int | None = None

    @property
    def otherwise(self) -> str:
        return NOISE if self.limit is None else UNDECIDED

    def spent(self, seeds: int) -> float:
        """The share of the error that is spent up to a number of seeds."""
        return 1.0 if self.limit is None else spent(seeds, self.limit)

    @classmethod
    def of(cls, written: Mapping[str, Any] | None) -> Design:
        """Read what `dataclasses.asdict` wrote; None is the design without margin and limit."""
        return cls(**(written or {}))


FIXED = Design()  # Equal numbers of seeds, and no margin


def decide_in_turn(
    histories: Mapping[str, Sequence[Pairs]], limit: int, margin: float | None
) -> dict[str, PairedDifference]:
    """Test variants against one baseline after three seeds, after one more, and so on, until each is decided.

    Without a margin, the share of the error of a variant that is decided goes to the others, as in Holm's correction
    (Maurer and Bretz 2013); with one, see [`compare_all`][zoo.comparison.results.statistics.compare_all]. A history is
    the pairs with the first three seeds, with the first four, and so on; a difference is that of the last look.
    """
    undecided = [name for name, history in histories.items() if history]
    tests = len(undecided)
    found: dict[str, PairedDifference] = {}
    for look in range(min(limit - FEWEST_SEEDS + 1, max(map(len, histories.values()), default=0))):
        decided: list[str] | None = None
        while decided is None or (decided and margin is None):
            share = ERROR / max(1, tests if margin is not None else len(undecided))
            there = [
                name for name in undecided if histories[name][look : look + 1] and histories[name][look].differences
            ]
            found |= {name: at_look(histories[name][look], share, look, limit, margin) for name in there}
            decided = [name for name in there if verdict(found[name]) in DECIDED]
            undecided = [name for name in undecided if name not in decided]
    return found


def at_look(pairs: Pairs, share: float, look: int, limit: int, margin: float | None) -> PairedDifference:
    """Test a difference at one look; sign tests, which have steps, spend the error of this look alone."""
    found = PairedDifference.of(pairs)
    if not found.is_by_size:
        return found.against(increment(share, look + FEWEST_SEEDS, limit), margin)
    at = found.pairs - FEWEST_SEEDS
    return found.against(levels(share, limit, 2)[at], margin, levels(share, limit, 1)[at])


BASELINE = "baseline"
FAILED = "failed"

Scores = Mapping[int, float | None]  # A score by seed; None where a run failed or diverged


def judged(
    scores: Mapping[str, Scores], baseline: str, better: int, design: Design = FIXED
) -> dict[str, tuple[PairedDifference | None, str]]:
    """Test every variant against the baseline, corrected for the number of variants."""
    base = scores.get(baseline, {})
    paired = {name: pairs_of(own, base, better) for name, own in scores.items() if name != baseline}
    tested = {name: pairs for name, pairs in paired.items() if pairs.differences}
    if design.limit is None:
        differences = dict(zip(tested, compare_all(list(tested.values()), design.margin), strict=True))
    else:
        histories = {name: [pairs_of(*sides, better) for sides in looks_of(scores[name], base)] for name in tested}
        looked = decide_in_turn(histories, design.limit, design.margin)
        differences = {name: looked.get(name) or PairedDifference.of(pairs) for name, pairs in tested.items()}
    words = {name: verdict(difference, design.otherwise) for name, difference in differences.items()}
    words[baseline] = BASELINE
    return {name: (differences.get(name), words.get(name, UNKNOWN)) for name in scores}


def pairs_of(own: Scores, baseline: Scores, better: int) -> Pairs:
    """Subtract the baseline's scores seed by seed; a run without a number is lost."""
    both = [(score, baseline[seed]) for seed, score in own.items() if seed in baseline]
    return Pairs(
        differences=[apart(mine, other) for mine, other in both if mine is not None and other is not None],
        lost=sum(mine is None and other is not None for mine, other in both),
        baseline_lost=sum(mine is not None and other is None for mine, other in both),
        better=better,
    )


def apart(one: float, other: float) -> float:
    """A difference, zero where numbers differ by rounding only."""
    return 0.0 if math.isclose(one, other, rel_tol=ROUNDING) else one - other


def looks_of(own: Scores, baseline: Scores) -> list[tuple[Scores, Scores]]:
    """The scores of both with the first three seeds that have a number, with the first four, and so on."""
    seeds = [seed for seed in own if seed in baseline and (own[seed], baseline[seed]) != (None, None)]
    return [
        ({seed: own[seed] for seed in seeds[:count]}, {seed: baseline[seed] for seed in seeds[:count]})
        for count in range(FEWEST_SEEDS, len(seeds) + 1)
    ]


def finite(value: float | None) -> float | None:
    """A number, None if it is missing or not finite: a diverged run has no score."""
    return value if value is not None and math.isfinite(value) else None


def measured(values: Iterable[float | None]) -> Measurements | None:
    """The numbers among values; None without any."""
    there = [number for value in values if (number := finite(value)) is not None]
    return Measurements(there) if there else None


def measured_by(columns: Mapping[str, Iterable[float | None]]) -> dict[str, Measurements]:
    """Summarise columns, without those that have no number."""
    return {name: sample for name, values in columns.items() if (sample := measured(values)) is not None}


def mean_of(scores: Sequence[float | None]) -> float | None:
    there = [score for score in scores if score is not None]
    return fmean(there) if len(there) == len(scores) else None
