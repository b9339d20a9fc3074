"""How far verdicts at this scale can be trusted: how often they have the sign that others published at a larger one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.comparison.results.distributions import increasing_inverse
from zoo.comparison.results.statistics import LEVEL
from zoo.data.tasks.metrics import rank_correlation

from ..definition import CALIBRATION, benchmarks
from ..rows import read_rows
from .contrast import Contrast, Known, Recorded, entries, made, read_contrast, themes
from .judging import FAILS, HOLDS, MISSING, NEITHER, UNCLEAR, Outcome, judge_rows

PUBLISHED = ("better", "worse", "no better")

CAME_OUT, OTHER_WAY, UNDECIDED = "came out", "came out the other way", "undecided"
RESULTS = {HOLDS: CAME_OUT, FAILS: OTHER_WAY, NEITHER: UNDECIDED, UNCLEAR: UNDECIDED, MISSING: MISSING}
"""Result of a sign, by the verdict on the contrast that expects it."""


@dataclass(frozen=True)
class Sign:
    """Published difference of a variant from a baseline."""

    sign: str  # It, as a sentence
    source: str  # Where it was published
    published: str  # One of `PUBLISHED`
    theme: str = ""  # A theme of claims, such as "positions"; of a sign that no rows can test, empty
    # The rows that test it, by the fields of `Contrast` but `expect`; empty where none can
    compare: Mapping[str, Any] | None = None
    untested: str = ""  # Why none can
    size: str = ""  # Of the published models, in parameters or layers; empty where it was not read
    tokens: str = ""  # That they were trained on; empty where that was not read
    # The published change of the loss as a share of the baseline's; None where no number was read
    effect: float | None = None
    name: str = ""


@dataclass(frozen=True)
class Trial:
    """A sign, tested at one size."""

    sign: Sign
    condition: str  # The condition, which is a size
    outcome: Outcome  # The verdict on the contrast that expects what was published

    @property
    def result(self) -> str:
        """`CAME_OUT`, `OTHER_WAY` or `UNDECIDED`, or `MISSING` where nothing is recorded."""
        return RESULTS[self.outcome.verdict]

    @property
    def comparison(self) -> tuple[str, str, str]:
        """The benchmark, the variant, and the baseline."""
        contrast = self.outcome.contrast
        return contrast.benchmark, contrast.variant, contrast.baseline

    @property
    def effect(self) -> float | None:
        """The difference as a share of the baseline's score; None without one."""
        difference, baseline = self.outcome.difference, self.outcome.baseline
        return None if difference is None or not baseline else difference.mean / baseline.mean


@dataclass(frozen=True)
class Rate:
    """How often something came out."""

    hits: int  # How often it did
    trials: int  # How often it was tried

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true rate is to be expected (Clopper and Pearson 1934)."""
        return binomial_interval(self.hits, self.trials)


@dataclass(frozen=True)
class Calibration:
    """Which published signs came out.

    Attributes:
        trials: Each sign at each size.
        untested: Signs that no rows can test.
    """

    trials: Sequence[Trial]
    untested: Sequence[Sign]

    def rate(self, condition: str) -> Rate:
        """How often published signs came out at one size, of those that are decided."""
        results = self.results(condition)
        return Rate(results[CAME_OUT], results[CAME_OUT] + results[OTHER_WAY])

    def decided(self, condition: str) -> Rate:
        """How many signs are decided at one size, of those that are recorded."""
        results = self.results(condition)
        decided = results[CAME_OUT] + results[OTHER_WAY]
        return Rate(decided, decided + results[UNDECIDED])

    def by_chance(self, condition: str) -> float | None:
        """The probability that signs drawn at random come out as often, or more often; None where none is decided."""
        rate = self.rate(condition)
        return at_least(0.5, rate.hits, rate.trials) if rate.trials else None

    def correlation(self, condition: str) -> float | None:
        """Spearman's rank correlation of published effects and those here; None of fewer than three."""
        pairs = [
            (trial.sign.effect, trial.effect)
            for trial in self.trials
            if trial.condition == condition and trial.sign.effect is not None and trial.effect is not None
        ]
        return rank_correlation([one for one, _ in pairs], [one for _, one in pairs]) if len(pairs) > 2 else None

    def results(self, condition: str) -> Counter[str]:
        """Count what came out at one size."""
        return Counter(trial.result for trial in self.trials if trial.condition == condition)

    def differences(self, condition: str, *, decided: bool) -> list[float]:
        """Absolute differences at one size, from small to large, of signs that are decided or that are not."""
        results = (CAME_OUT, OTHER_WAY) if decided else (UNDECIDED,)
        found = (one.outcome.difference for one in self.trials if one.condition == condition and one.result in results)
        return sorted(abs(one.mean) for one in found if one is not None)

    def by_theme(self) -> dict[str, Calibration]:
        """The trials of each theme, by its name."""
        themes = sorted({trial.sign.theme for trial in self.trials})
        return {name: Calibration([one for one in self.trials if one.sign.theme == name], []) for name in themes}

    @property
    def agreed(self) -> Calibration:
        """One trial at each size of each comparison on which all sources agree."""
        published: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        first: dict[tuple[Any, ...], Trial] = {}
        for trial in self.trials:
            published[trial.comparison].add(trial.sign.published)
            first.setdefault((trial.comparison, trial.condition), trial)
        return Calibration([trial for trial in first.values() if len(published[trial.comparison]) == 1], [])

    @property
    def conditions(self) -> list[str]:
        """The sizes, in the benchmark's order."""
        return list(dict.fromkeys(trial.condition for trial in self.trials))


def calibrate(file: Path = CALIBRATION) -> Calibration:
    """Compare published signs with the recorded benchmarks.

    Args:
        file: The YAML file of the signs; by default the one that was committed before its rows were recorded.

    Raises:
        ZooError: When something in it is missing, unknown, or empty.
    """
    known = benchmarks()
    signs = [read_sign(file, name, content) for name, content in entries(file).items()]
    recorded = {name: read_rows(benchmark.results) for name, benchmark in known.items()}
    trials = [trial for sign in signs for trial in try_sign(sign, file, known, recorded)]
    return Calibration(trials, [sign for sign in signs if sign.compare is None])


def read_sign(file: Path, name: str, content: object) -> Sign:
    where = f"{file}, {name}"
    sign = made(Sign, content, where)
    InvalidChoiceError.check(sign.published, valid=PUBLISHED, kind="published sign", owner=where)
    if (sign.compare is None) != bool(sign.untested):
        raise ConfigError(f"{where}: it needs either compare, or a sentence why it is untested")
    if sign.compare is not None:
        InvalidChoiceError.check(sign.theme, valid=themes(), kind="theme", owner=where)
    return replace(sign, name=name)


def try_sign(sign: Sign, file: Path, known: Known, recorded: Recorded) -> list[Trial]:
    if sign.compare is None:
        return []
    where = f"{file}, {sign.name}"
    whole = read_contrast({"expect": "higher", **sign.compare}, where, known)
    benchmark = known[whole.benchmark]
    more = (benchmark.better(whole.score) > 0) == (sign.published != "worse")
    expected: dict[str, Any] = {"expect": "higher" if more else "lower"}
    if sign.published == "no better":
        expected = {"expect": "no higher" if more else "no lower", "margin": benchmark.margin or 0.0}
    contrasts: list[Contrast] = [
        replace(whole, conditions=[condition], **expected) for condition in whole.conditions or benchmark.conditions
    ]
    # Each size is judged by itself: how often verdicts are right is what is asked.
    outcomes = [outcome for one in contrasts for outcome in judge_rows([one], known, recorded)]
    return [Trial(sign, one.contrast.conditions[0], one) for one in outcomes]


def at_least(rate: float, wanted: int, trials: int) -> float:
    """The probability of at least this number of hits."""
    rate = min(rate, 1.0)
    return math.fsum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(wanted, trials + 1))


def binomial_interval(hits: int, trials: int) -> tuple[float, float]:
    """The interval of Clopper and Pearson (1934), which covers a rate with at least `LEVEL`."""
    tail = (1 - LEVEL) / 2
    low = increasing_inverse(lambda rate: at_least(rate, hits, trials), tail) if hits else 0.0
    high = increasing_inverse(lambda rate: at_least(rate, hits + 1, trials), 1 - tail) if hits < trials else 1.0
    return low, high
