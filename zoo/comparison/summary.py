"""A comparison, seed upon seed: a row a variant, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .columns import Column, columns_of
from .results import Comparison, Run
from .statistics import UNKNOWN, Difference, Sample, compare_all, noise_floor, verdict

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
        """The variant with the best mean main score."""
        main = self.main
        if main is None:
            return None
        known = [row for row in self.rows if main.key in row.samples]
        return max(known, key=lambda row: main.better * row.samples[main.key].mean, default=None)

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
        name: [] if main is None else paired_differences(main, own, baseline)
        for name, own in runs.items()
        if name != comparison.baseline
    }
    tested = [name for name, values in paired.items() if values]
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
            word = verdict(difference, higher_is_better=main.better > 0)
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
        values = [value for value in map(column.read, runs) if value is not None and math.isfinite(value)]
        if values:
            samples[column.key] = Sample.of(values)
    return samples


def paired_differences(column: Column, runs: Sequence[Run], baseline: Sequence[Run]) -> list[float]:
    """Subtract the baseline's numbers seed by seed.

    Args:
        column: Which numbers.
        runs: A variant's runs.
        baseline: The baseline's.

    Returns:
        A difference for every seed that both have finished with a number.
    """
    base = {run.seed: column.read(run) for run in baseline}
    pairs = [(column.read(run), base.get(run.seed)) for run in runs]
    return [
        own - other
        for own, other in pairs
        if own is not None and other is not None and math.isfinite(own) and math.isfinite(other)
    ]
