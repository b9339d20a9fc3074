"""Published numbers next to the recorded ones: how near they are, and whether chance explains the rest."""

from __future__ import annotations

from collections.abc import Mapping

from zoo.comparison.results.statistics import Measurements, student_interval

from ..results.design import measured
from .across import averages
from .definition import Anchor, Benchmark
from .judging import Verdicts
from .page import spread


def anchors(benchmark: Benchmark, judged: Mapping[str, Verdicts], lead: str = "Published for ") -> str:
    lines = []
    for anchor in benchmark.anchors:
        sample = anchored(anchor, benchmark, judged)
        came = "not recorded yet" if sample is None else compared(anchor, sample)
        lines.append(f"- {lead}`{anchor.variant}`: {anchor.value:g} ({anchor.source}); {came}.")
    return "\n".join(lines)


def anchored(anchor: Anchor, benchmark: Benchmark, judged: Mapping[str, Verdicts]) -> Measurements | None:
    """Find what a published number is about."""
    if anchor.condition in judged:
        standing = judged[anchor.condition].of(anchor.variant)
        return None if standing is None else standing.samples.get(benchmark.score)
    rows = [row for verdicts in judged.values() for standing in verdicts.standings for row in standing.rows]
    return measured(averages(benchmark, rows).get(anchor.variant, {}).values())


def compared(anchor: Anchor, sample: Measurements) -> str:
    """Describe how near the recorded scores are, and whether Student's interval, if any, contains it."""
    least, most = anchor.room
    if anchor.tolerance is None:
        needed = f"an average over {anchor.averaged_over} scores, this one included, needs {least:.4g} to {most:.4g}"
        came = f"{spread(sample)} here, where {needed}"
    else:
        near = abs(sample.mean - anchor.value) <= anchor.tolerance
        came = f"{spread(sample)} here, {'within' if near else 'NOT within'} {anchor.tolerance:g} of it"
    if not sample.deviation:
        return came
    low, high = student_interval(sample.values)
    word = "excludes" if high < least or most < low else "does not exclude"
    return f"{came}; the interval of 95 % for the mean, {low:.4g} to {high:.4g}, {word} it"
