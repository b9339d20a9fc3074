"""A comparison, seed upon seed: a row a variant, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .columns import Column, columns_of
from .results import Comparison, Run
from .statistics import UNKNOWN, Difference, Pairs, Sample, compare_all, noise_floor, verdict

BASELINE = "baseline"
FAILED = "failed"


@dataclass(frozen=True)
class Row:
    """A variant.

    Attributes:
        name: Its name.
        runs: Its runs.
        samples: What is known of each column, by key; columns that no run of it fills are left out.
        difference: How its main score differs from the baseline's; None for the baseline, and where one of the two has
            no number.
        verdict: `BASELINE`, `FAILED`, or a word of `zoo.comparison.statistics`.
    """

    name: str
    runs: Sequence[Run]
    samples: dict[str, Sample]
    difference: Difference | None
    verdict: str

    @property
    def failed(self) -> list[Run]:
        """The runs that failed."""
        return [run for run in self.runs if run.failed]

    @property
    def finished(self) -> list[Run]:
        """The runs that have numbers."""
        return [run for run in self.runs if run.report is not None]


@dataclass(frozen=True)
class Summary:
    """A comparison, a row a variant.

    Attributes:
        comparison: The comparison.
        columns: What is known of at least one run.
        rows: The variants, in their order.
        main: The column that decides; None where no run has finished.
        floor: How far a variant must be from the baseline to be told from noise, as a rule; None where nothing was
            tested.
    """

    comparison: Comparison
    columns: list[Column]
    rows: list[Row]
    main: Column | None
    floor: float | None

    @property
    def best(self) -> Row | None:
        """The variant with the best mean main score, of those that lost the fewest runs."""
        main = self.main
        if main is None:
            return None

        def goodness(row: Row) -> tuple[int, float]:
            sample = row.samples[main.key]
            return len(sample.values) - len(row.runs), main.better * sample.mean

        return max((row for row in self.rows if main.key in row.samples), key=goodness, default=None)

    def column(self, key: str) -> Column | None:
        """Find a column.

        Args:
            key: Its key.

        Returns:
            The column, None where no run fills it.
        """
        return next((column for column in self.columns if column.key == key), None)


def summarize(comparison: Comparison) -> Summary:
    """Put the runs of each variant together, and test the main score against the baseline's.

    Args:
        comparison: The comparison.

    Returns:
        The summary.
    """
    columns = columns_of(comparison)
    main = next((column for column in columns if column.key == comparison.main_score), None)
    runs = {name: comparison.runs_of(name) for name in comparison.names}
    baseline = runs[comparison.baseline]
    paired = {
        name: pairs_of(main, own, baseline)
        for name, own in runs.items()
        if name != comparison.baseline and main is not None
    }
    tested = [name for name, pairs in paired.items() if pairs.differences]
    differences = dict(zip(tested, compare_all([paired[name] for name in tested]), strict=True))
    rows = []
    for name, own in runs.items():
        difference = differences.get(name)
        if not any(run.report is not None for run in own):
            word = FAILED
        elif name == comparison.baseline:
            word = BASELINE
        elif difference is None or main is None:
            word = UNKNOWN
        else:
            word = verdict(difference)
        rows.append(Row(name, own, samples_of(columns, own), difference, word))
    return Summary(comparison, columns, rows, main, noise_floor(list(differences.values())))


def samples_of(columns: Sequence[Column], runs: Sequence[Run]) -> dict[str, Sample]:
    """Summarise each column over the seeds.

    Args:
        columns: The columns.
        runs: The runs of one variant.

    Returns:
        A sample for every column that has numbers, by key.
    """
    samples = {}
    for column in columns:
        values = [value for run in runs if (value := number_of(column, run)) is not None]
        if values:
            samples[column.key] = Sample.of(values)
    return samples


def pairs_of(column: Column, runs: Sequence[Run], baseline: Sequence[Run]) -> Pairs:
    """Subtract the baseline's numbers seed by seed, and count the runs that have none.

    Args:
        column: Which numbers.
        runs: A variant's runs.
        baseline: The baseline's.

    Returns:
        The pairs. A run whose number is not finite has diverged, which counts as having failed.
    """
    own, base = ({run.seed: number_of(column, run) for run in each} for each in (runs, baseline))
    both = [(own[seed], base[seed]) for seed in own if seed in base]
    return Pairs(
        differences=[mine - other for mine, other in both if mine is not None and other is not None],
        lost=sum(mine is None and other is not None for mine, other in both),
        baseline_lost=sum(mine is not None and other is None for mine, other in both),
        better=column.better,
    )


def number_of(column: Column, run: Run) -> float | None:
    """Read a number.

    Args:
        column: Which one.
        run: Of which run.

    Returns:
        The number, None where there is none or it is not finite.
    """
    value = column.read(run)
    return value if value is not None and math.isfinite(value) else None
