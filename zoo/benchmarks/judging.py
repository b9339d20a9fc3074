"""From rows to verdicts: what each variant comes to over its seeds, and whether that differs from the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from zoo.comparison import Run
from zoo.comparison.results.metrics import COSTS, LOSSES
from zoo.comparison.results.statistics import UNKNOWN, Measurements, PairedDifference, Pairs, compare_all, verdict
from zoo.comparison.results.summary import BASELINE, FAILED

from .definition import Benchmark
from .rows import SHIPPED, Row

LOWER_IS_BETTER = frozenset({"heldout_loss", "train_loss", "perplexity", "bits_per_byte"})
"""Columns of quality of which less is better."""


@dataclass(frozen=True)
class Standing:
    """Where a variant stands.

    Attributes:
        variant: Its name.
        rows: Its rows, a row a seed.
        samples: Each column over the seeds that have a number.
        difference: How its score differs from the baseline's; None for the baseline, and where one has no number.
        verdict: "baseline", "failed", "better", "worse", "within noise" or "untested".
    """

    variant: str
    rows: Sequence[Row]
    samples: Mapping[str, Measurements]
    difference: PairedDifference | None
    verdict: str

    @property
    def lost(self) -> int:
        """How many runs failed or diverged."""
        return sum(bool(row.error) for row in self.rows)


@dataclass(frozen=True)
class Verdicts:
    """What a benchmark says under one condition.

    Attributes:
        benchmark: The benchmark.
        condition: The condition.
        data: Of which data: "shipped", or a digest.
        score: The column that decides.
        standings: The variants, the best one first; those without a number come last.
        missing: Variants of the benchmark that no run was recorded of.
    """

    benchmark: Benchmark
    condition: str
    data: str
    score: str
    standings: Sequence[Standing]
    missing: Sequence[str]

    def of(self, variant: str) -> Standing | None:
        """Find a variant.

        Args:
            variant: Its name.

        Returns:
            Where it stands; None where it was not recorded.
        """
        return next((one for one in self.standings if one.variant == variant), None)


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
        benchmark: The benchmark.
        rows: What was recorded; rows of other versions, conditions and data are left out.
        condition: The condition.
        score: The column that decides; by default the benchmark's.
        data: Of which data; by default of the text that the benchmark names, or what ships.
        baseline: What the others are measured against; by default the benchmark's first variant.

    Returns:
        The verdicts, corrected for the number of variants.
    """
    score = score or benchmark.score
    names = benchmark.names(condition)
    baseline = baseline or names[0]
    data = data or (benchmark.text.sha256 if benchmark.text else SHIPPED)
    found: dict[str, list[Row]] = {}
    for row in rows:
        if (row.version, row.condition, row.data) == (benchmark.version, condition, data):
            found.setdefault(row.variant, []).append(row)
    others = [name for name in found if name != baseline]
    paired = {name: pairs_of(score, found[name], found.get(baseline, [])) for name in others}
    tested = [name for name in others if paired[name].differences]
    differences = dict(zip(tested, compare_all([paired[name] for name in tested]), strict=True))
    standings = [
        Standing(
            variant=name,
            rows=own,
            samples=samples_of(own),
            difference=differences.get(name),
            verdict=word_for(name, own, score, differences.get(name), baseline),
        )
        for name, own in found.items()
    ]
    standings.sort(key=lambda one: (score not in one.samples, one.lost, badness(one, score)))
    return Verdicts(benchmark, condition, data, score, standings, [name for name in names if name not in found])


def badness(standing: Standing, score: str) -> float:
    """How far behind a variant is.

    Args:
        standing: The variant.
        score: The column that decides.

    Returns:
        A number that is lower for a better mean.
    """
    sample = standing.samples.get(score)
    return math.inf if sample is None else -direction(score) * sample.mean


def direction(column: str) -> int:
    """Whether more of a column is better.

    Args:
        column: A column of quality, possibly of a test ("heldout_loss@twice").

    Returns:
        1 where more is better, -1 where less is.
    """
    return -1 if column.partition("@")[0] in LOWER_IS_BETTER else 1


def word_for(name: str, rows: Sequence[Row], score: str, difference: PairedDifference | None, baseline: str) -> str:
    """Say in a word where a variant stands.

    Args:
        name: Its name.
        rows: Its rows.
        score: The column that decides.
        difference: How it differs from the baseline, if that is known.
        baseline: The baseline.

    Returns:
        A verdict.
    """
    if not any(score in row.values for row in rows):
        return FAILED
    if name == baseline:
        return BASELINE
    return UNKNOWN if difference is None else verdict(difference)


def pairs_of(score: str, rows: Sequence[Row], baseline: Sequence[Row]) -> Pairs:
    """Subtract the baseline's scores seed by seed. A run that failed or diverged is worse than any number.

    Args:
        score: The column that decides.
        rows: A variant's rows.
        baseline: The baseline's.

    Returns:
        The pairs.
    """
    own, base = ({row.seed: finite(row, score) for row in each} for each in (rows, baseline))
    both = [(own[seed], base[seed]) for seed in own if seed in base]
    return Pairs(
        differences=[mine - other for mine, other in both if mine is not None and other is not None],
        lost=sum(mine is None and other is not None for mine, other in both),
        baseline_lost=sum(mine is not None and other is None for mine, other in both),
        better=direction(score),
    )


def finite(row: Row, column: str) -> float | None:
    """Read a number of a row.

    Args:
        row: The row.
        column: The column.

    Returns:
        The number; None where there is none, or it is not finite.
    """
    value = row.values.get(column)
    return value if value is not None and math.isfinite(value) else None


def samples_of(rows: Sequence[Row]) -> dict[str, Measurements]:
    """Summarise each column over the seeds.

    Args:
        rows: The rows of one variant.

    Returns:
        A sample for every column that has numbers.
    """
    columns = dict.fromkeys(name for row in rows for name in row.values)
    values = {name: [value for row in rows if (value := finite(row, name)) is not None] for name in columns}
    return {name: Measurements.of(found) for name, found in values.items() if found}


def columns_of_run(run: Run) -> dict[str, float]:
    """Read all numbers of a run.

    Args:
        run: The run.

    Returns:
        Scores, losses and costs, by the names of their columns.
    """
    scores = {} if run.report is None else {name: score["value"] for name, score in run.report["scores"].items()}
    numbers = {column.key: column.read(run) for column in (*LOSSES, *COSTS)}
    return {name: value for name, value in {**scores, **numbers}.items() if value is not None}
