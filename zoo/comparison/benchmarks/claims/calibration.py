"""How far verdicts at this scale can be trusted: how often they have the sign that others published at a larger one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.comparison.results.distributions import increasing_inverse
from zoo.comparison.results.statistics import LEVEL

from ..definition import CALIBRATION, Benchmark, benchmarks
from ..rows import Row, read_rows
from .contrast import Contrast, entries, made, read_contrast
from .judging import HOLDS, MISSING, Outcome, judge_contrasts

PUBLISHED = ("better", "worse", "no better")


@dataclass(frozen=True)
class Sign:
    """What was published of a variant beside a baseline.

    Attributes:
        sign: It, as a sentence.
        source: Where it was published.
        published: One of `PUBLISHED`.
        compare: The rows that test it, by the fields of [`Contrast`][] but `expect`; empty where none can.
        untested: Why none can.
        name: Its name.
    """

    sign: str
    source: str
    published: str
    compare: Mapping[str, Any] | None = None
    untested: str = ""
    name: str = ""


@dataclass(frozen=True)
class Trial:
    """A sign, tested at one size.

    Attributes:
        sign: The sign.
        condition: The condition, which is a size.
        outcome: What the rows say; `expect` is that the variant is better, or worse where worse was published.
    """

    sign: Sign
    condition: str
    outcome: Outcome

    @property
    def hit(self) -> bool | None:
        """Whether the published sign came out; None where nothing is recorded.

        Better and worse come out by the sign of the mean difference, and a run that is lost is worse than any number;
        "no better" comes out unless the variant is better beyond noise.
        """
        outcome = self.outcome
        if outcome.verdict == MISSING:
            return None
        if self.sign.published == "no better":
            return outcome.verdict != HOLDS
        lost, baseline_lost = outcome.lost
        if lost != baseline_lost or outcome.difference is None:
            return (lost > baseline_lost) == (self.sign.published == "worse")
        return outcome.difference.mean * outcome.contrast.direction > 0


@dataclass(frozen=True)
class Rate:
    """How often something came out.

    Attributes:
        hits: How often it did.
        trials: How often it was tried.
        interval: Where the true rate is to be expected (Clopper and Pearson 1934).
    """

    hits: int
    trials: int
    interval: tuple[float, float]

    @classmethod
    def of(cls, hits: Iterable[bool]) -> Rate:
        """Count."""
        counted = list(hits)
        return cls(sum(counted), len(counted), binomial_interval(sum(counted), len(counted)))


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
        """Describe how often published signs came out at one size, a trial a sign; those without rows are left out."""
        hits = [trial.hit for trial in self.trials if trial.condition == condition]
        return Rate.of(hit for hit in hits if hit is not None)

    @property
    def conditions(self) -> list[str]:
        """The sizes, in the benchmark's order."""
        return list(dict.fromkeys(trial.condition for trial in self.trials))


def calibrate(file: Path = CALIBRATION) -> Calibration:
    """Compare published signs with what the recorded benchmarks say.

    Args:
        file: The YAML file of the signs; by default the one that was committed before its rows were recorded.

    Raises:
        ZooError: When something in it is missing, unknown, or says nothing.
    """
    known = benchmarks()
    signs = [read_sign(file, name, said) for name, said in entries(file).items()]
    recorded = {name: read_rows(benchmark.results) for name, benchmark in known.items()}
    trials = [trial for sign in signs for trial in try_sign(sign, file, known, recorded)]
    return Calibration(trials, [sign for sign in signs if sign.compare is None])


def read_sign(file: Path, name: str, said: object) -> Sign:
    """Read a sign."""
    where = f"{file}, {name}"
    sign = made(Sign, said, where)
    if sign.published not in PUBLISHED:
        raise InvalidChoiceError(sign.published, PUBLISHED, kind="published sign", owner=where)
    if (sign.compare is None) != bool(sign.untested):
        raise ConfigError(f"{where}: it needs either compare, or a sentence why it is untested")
    return replace(sign, name=name)


def try_sign(
    sign: Sign, file: Path, known: Mapping[str, Benchmark], recorded: Mapping[str, Sequence[Row]]
) -> list[Trial]:
    """Test a sign at every size."""
    if sign.compare is None:
        return []
    where = f"{file}, {sign.name}"
    whole = read_contrast({"expect": "higher", **sign.compare}, where, known)
    benchmark = known[whole.benchmark]
    more = (benchmark.better(whole.score) > 0) == (sign.published != "worse")
    contrasts: list[Contrast] = [
        replace(whole, conditions=[condition], expect="higher" if more else "lower")
        for condition in whole.conditions or benchmark.conditions
    ]
    outcomes = judge_contrasts(contrasts, [one.scores(benchmark, recorded[benchmark.name]) for one in contrasts])
    return [Trial(sign, one.contrast.conditions[0], one) for one in outcomes]


def binomial_interval(hits: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of Clopper and Pearson (1934), which holds a rate at least as often as its level says."""
    tail = (1 - level) / 2

    def at_least(rate: float, wanted: int) -> float:
        rate = min(rate, 1.0)
        return math.fsum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(wanted, trials + 1))

    low = increasing_inverse(lambda rate: at_least(rate, hits), tail) if hits else 0.0
    high = increasing_inverse(lambda rate: at_least(rate, hits + 1), 1 - tail) if hits < trials else 1.0
    return low, high
