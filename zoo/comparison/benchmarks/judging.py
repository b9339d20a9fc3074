"""Verdicts from recorded rows: each variant against the baseline over their seeds, in one benchmark and in all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from zoo.base.errors import ConfigError, UnknownNameError
from zoo.comparison import Run
from zoo.comparison.results.metrics import COSTS, LOSSES
from zoo.comparison.results.statistics import DECIDED, EDGE, Measurements, PairedDifference
from zoo.models.parts import deviations_of

from ..request.seeds import at_the_edge, read_sweep
from ..results.design import BASELINE, FAILED, Design, judged, measured_by
from ..results.units import enumerated
from .definition import Benchmark, benchmarks, find_benchmark
from .rows import DECAYED, Row, read_rows


@dataclass(frozen=True)
class Standing:
    """Rank and verdict of a variant."""

    variant: str  # Its name
    rows: Sequence[Row]  # Its rows, a row a seed
    samples: Mapping[str, Measurements]  # Each column over the seeds that have a number
    # How its score differs from the baseline's; None for the baseline, and where one has no number
    difference: PairedDifference | None
    # "baseline", "failed", or a word of `zoo.comparison.results.statistics`; `EDGE` in place of a verdict that decides
    # where the variant's or the baseline's best swept value is at the edge of what was tried
    verdict: str
    lost: int  # Number of rows without a number in the column that decides: their runs failed or diverged

    @property
    def deviations(self) -> tuple[str, ...]:
        """How the variant, and its parts, differ from their papers."""
        return deviations_of(self.variant)

    @property
    def pairs(self) -> int | None:
        """Number of seeds that the difference is of, if more are recorded: those up to the look that decided."""
        used = len(self.rows) if self.difference is None else self.difference.pairs + self.difference.lost
        return used if used < len(self.rows) else None


@dataclass(frozen=True)
class Verdicts:
    """Verdicts of a benchmark under one condition.

    Attributes:
        benchmark: The benchmark.
        condition: The condition.
        data: The data: "shipped", or a digest.
        score: The column that decides.
        standings: The variants, the best one first; those without a number come last.
    """

    benchmark: Benchmark
    condition: str
    data: str
    score: str
    standings: Sequence[Standing]

    @property
    def design(self) -> Design:
        """The design of the tests; a margin is of the benchmark's own score."""
        design = self.benchmark.design
        return design if self.score == self.benchmark.score else replace(design, margin=None)

    @cached_property
    def missing(self) -> list[str]:
        """Variants of the benchmark that no run was recorded of."""
        found = {one.variant for one in self.standings}
        return [name for name in self.benchmark.names(self.condition) if name not in found]

    def of(self, variant: str) -> Standing | None:
        """The standing of a variant; None where it was not recorded."""
        return next((one for one in self.standings if one.variant == variant), None)

    def unequal_decay(self, variant: str) -> str:
        """Roles of parameters that decay in a variant or in the baseline alone: "gains and scalars"; empty for none."""
        own = self.of(variant)
        baseline = next((one for one in self.standings if one.verdict == BASELINE), own)
        roles = [{role for row in one.rows for role in row.settings.get(DECAYED, ())} for one in (own, baseline) if one]
        return enumerated(roles[0] ^ roles[-1]) if roles else ""

    def at_the_edge(self) -> dict[str, dict[str, float]]:
        """Best values of swept arguments that are the least or the greatest tried, by argument and variant."""
        found: dict[str, dict[str, float]] = {}
        for one in self.standings:
            for row in one.rows:
                for name, value in edges(self.benchmark, row).items():
                    found.setdefault(name, {})[one.variant] = value
        return found


def edges(benchmark: Benchmark, row: Row) -> dict[str, float]:
    """Find swept arguments of a row with the least or the greatest value that was `tried`, of more than two."""
    sweep = row.settings.get("tried") or read_sweep(benchmark.arguments(row.condition).get("sweep"))
    return {
        name: row.settings[name]
        for name, tried in sweep.items()
        if len(tried) > 2 and at_the_edge(row.settings.get(name), tried)
    }


def judge(
    benchmark: Benchmark,
    rows: Iterable[Row],
    condition: str = "",
    *,
    score: str | None = None,
    data: str | None = None,
    baseline: str | None = None,
) -> Verdicts:
    """Put the rows of one condition together, and test every variant against the baseline.

    Args:
        rows: Recorded rows; those of other versions, conditions and data are left out.
        score: The column that decides; by default the benchmark's.
        data: The data; by default the text that the benchmark names, or what ships.
        baseline: The variant that the others are compared with; by default the benchmark's first variant.

    Returns:
        The verdicts, corrected for the number of variants.

    Raises:
        UnknownNameError: When rows were recorded, but none has such a column, or none is of such a baseline.
    """
    score = score or benchmark.score
    baseline = baseline or benchmark.baseline(condition)
    data = data or benchmark.data
    found: dict[str, list[Row]] = {}
    for row in sorted(benchmark.comparable(rows, data), key=lambda row: row.seed):
        if row.condition == condition:
            found.setdefault(row.variant, []).append(row)
    known = list(dict.fromkeys(column for own in found.values() for row in own for column in row.values))
    if known:
        UnknownNameError.check(score, valid=known, kind="column", owner=f"benchmark {benchmark.name!r}")
    if found and baseline not in found and baseline not in benchmark.names(condition):
        raise UnknownNameError(baseline, list(found), kind="baseline")
    better = benchmark.better(score)
    scores = {name: {row.seed: row.number(score) for row in own} for name, own in found.items()}
    at_edge = {name: any(edges(benchmark, row) for row in own) for name, own in found.items()}
    verdicts = Verdicts(benchmark, condition, data, score, standings := [])
    for name, (difference, word) in judged(scores, baseline, better, verdicts.design).items():
        finished = any(value is not None for value in scores[name].values())
        if word in DECIDED and (at_edge[name] or at_edge.get(baseline)):
            word = EDGE
        lost = sum(value is None for value in scores[name].values())
        word = word if finished else FAILED
        columns = dict.fromkeys(column for row in found[name] for column in row.values)
        samples = measured_by({column: [row.number(column) for row in found[name]] for column in columns})
        standings.append(Standing(name, found[name], samples, difference, word, lost))

    def badness(one: Standing) -> tuple[bool, int, float]:
        sample = one.samples.get(score)
        return sample is None, one.lost, 0.0 if sample is None else -better * sample.mean

    standings.sort(key=badness)
    return verdicts


def columns_of_run(run: Run) -> dict[str, float]:
    scores = {} if run.report is None else {name: score["value"] for name, score in run.report["scores"].items()}
    numbers = {column.key: column.read(run) for column in (*LOSSES, *COSTS)}
    return {name: value for name, value in {**scores, **numbers}.items() if value is not None}


def recorded(benchmark: Benchmark) -> list[Verdicts]:
    rows = read_rows(benchmark.results)
    found = [judge(benchmark, rows, condition) for condition in benchmark.conditions]
    return [verdicts for verdicts in found if verdicts.standings]


def standings_of(variant: str) -> list[tuple[Verdicts, Standing]]:
    """Find a variant in all benchmarks."""
    judged = [verdicts for benchmark in benchmarks().values() for verdicts in recorded(benchmark)]
    return [(verdicts, standing) for verdicts in judged if (standing := verdicts.of(variant)) is not None]


def ranking(name: str) -> Verdicts:
    """Summarize a benchmark under its first recorded condition: baseline, best, worst, and counts of verdicts."""
    benchmark = find_benchmark(name)
    for verdicts in recorded(benchmark):
        return verdicts
    known = [one.name for one in benchmarks().values() if read_rows(one.results)]
    raise ConfigError(f"nothing is recorded of benchmark {benchmark.name!r}; of these is: {', '.join(known)}")


def as_data(verdicts: Verdicts, standing: Standing) -> dict[str, Any]:
    sample, difference = standing.samples.get(verdicts.score), standing.difference
    return {
        "benchmark": verdicts.benchmark.name,
        "condition": verdicts.condition,
        "score": verdicts.score,
        "mean": sample and sample.mean,
        "seeds": len(standing.rows),
        "difference": difference and difference.mean,
        "verdict": standing.verdict,
    }
