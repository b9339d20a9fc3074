"""Summary of a comparison over its seeds: a row and a verdict per variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ..run.record import Run
from .comparison import Comparison
from .design import FAILED, Design, finite, judged, measured_by
from .fairness import FairnessSheet, fairness_sheet
from .metrics import Metric, metrics_of
from .statistics import Measurements, PairedDifference


@dataclass(frozen=True)
class VariantSummary:
    """A variant."""

    name: str
    runs: Sequence[Run]
    # The values of each metric over the seeds, by key; a metric that no run of it has is left out
    samples: dict[str, Measurements]
    # How its main score differs from the baseline's; None for the baseline, and where one of the two has no number
    difference: PairedDifference | None
    verdict: str  # `BASELINE`, `FAILED`, or a word of `zoo.comparison.results.statistics`

    @property
    def failed(self) -> list[Run]:
        return [run for run in self.runs if run.failed]

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if not run.failed]

    def lost(self, metric: Metric) -> int:
        """How many runs have no number."""
        return len(self.runs) - (len(self.samples[metric.key].values) if metric.key in self.samples else 0)


@dataclass(frozen=True)
class ComparisonSummary:
    """A comparison, a row a variant.

    Attributes:
        comparison: The comparison.
        metrics: Those that at least one run has.
        rows: The variants, in their order.
        main: The metric that decides; None where no run has finished. In place of perplexity it is the held-out loss,
            its logarithm, which is nearer to a normal distribution.
    """

    comparison: Comparison
    metrics: list[Metric]
    rows: list[VariantSummary]
    main: Metric | None

    @cached_property
    def fairness(self) -> FairnessSheet:
        """Shared and different settings of the variants, and qualifications of their verdicts."""
        return fairness_sheet(self.comparison)

    @property
    def design(self) -> Design:
        """How verdicts are reached."""
        return Design.of(self.comparison.design)

    @property
    def differences(self) -> list[PairedDifference]:
        return [row.difference for row in self.rows if row.difference is not None]

    def ranked(self, metric: Metric) -> list[VariantSummary]:
        """Variants that are compared by their means of a metric: those with a number that lost the fewest runs."""
        measured = [row for row in self.rows if metric.key in row.samples]
        fewest = min((row.lost(metric) for row in measured), default=0)
        return [row for row in measured if row.lost(metric) == fewest]

    @property
    def best(self) -> VariantSummary | None:
        """The variant with the best mean main score, of those that lost the fewest runs."""
        main = self.main
        if main is None:
            return None
        return max(self.ranked(main), key=lambda row: main.better * row.samples[main.key].mean, default=None)


def summarize(comparison: Comparison) -> ComparisonSummary:
    """Put the runs of each variant together, and test the main score against the baseline's."""
    metrics = metrics_of(comparison)
    decides = "heldout_loss" if comparison.main_score == "perplexity" else comparison.main_score
    main = next((metric for metric in metrics if metric.key == decides), None)
    runs = {name: comparison.runs_of(name) for name in comparison.names}
    scores = {name: {run.seed: number_of(main, run) for run in own} for name, own in runs.items()}
    rows = []
    verdicts = judged(scores, comparison.baseline, main.better if main else 1, Design.of(comparison.design))
    for name, (difference, word) in verdicts.items():
        finished = not all(run.failed for run in runs[name])
        samples = measured_by({one.key: [number_of(one, run) for run in runs[name]] for one in metrics})
        rows.append(VariantSummary(name, runs[name], samples, difference, word if finished else FAILED))
    return ComparisonSummary(comparison, metrics, rows, main)


def number_of(metric: Metric | None, run: Run) -> float | None:
    """The value of a metric; None of a run that failed, be it by a model that answers otherwise after loading."""
    return None if metric is None or run.failed else finite(metric.read(run))
