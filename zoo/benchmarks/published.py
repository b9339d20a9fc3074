"""Published numbers beside the recorded ones: how near they are, and whether chance explains the rest."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from zoo.comparison.results.statistics import Measurements, PairedDifference, Pairs
from zoo.comparison.results.verdicts import finite

from .definition import Anchor, Benchmark
from .judging import Verdicts
from .page import spread


def anchors(benchmark: Benchmark, judged: Mapping[str, Verdicts], lead: str = "Published for ") -> str:
    """Put published numbers beside the recorded ones.

    Args:
        judged: The verdicts of each condition.
        lead: What each line begins with, before the variant.

    Returns:
        A line an anchor, empty where there are none.
    """
    lines = []
    for anchor in benchmark.anchors:
        sample = anchored(anchor, judged, benchmark.score)
        if sample is None:
            came = "not recorded yet"
        else:
            near = abs(sample.mean - anchor.value) <= anchor.tolerance
            came = f"{spread(sample)} here, {'within' if near else 'NOT within'} {anchor.tolerance:g} of it"
            came += interval_told(sample, anchor.value)
        lines.append(f"- {lead}`{anchor.variant}`: {anchor.value:g} ({anchor.source}); {came}.")
    return "\n".join(lines)


def anchored(anchor: Anchor, judged: Mapping[str, Verdicts], score: str) -> Measurements | None:
    """Find what a published number is about.

    Args:
        judged: The verdicts of each condition.
        score: The column that decides.

    Returns:
        The scores of a condition, or averaged over all of them with each seed that has all; None without any.
    """
    wanted = [judged[anchor.condition]] if anchor.condition in judged else list(judged.values())
    by_seed: dict[int, list[float]] = {}
    for standing in filter(None, (verdicts.of(anchor.variant) for verdicts in wanted)):
        for row in standing.rows:
            if (value := finite(row.values.get(score))) is not None:
                by_seed.setdefault(row.seed, []).append(value)
    means = [fmean(values) for values in by_seed.values() if len(values) == len(wanted)]
    return Measurements.of(means) if means else None


def interval_told(sample: Measurements, published: float) -> str:
    """Say whether Student's interval for a mean contains a published number; nothing where seeds do not differ."""
    off = PairedDifference.of(Pairs([value - published for value in sample.values])).interval
    if off is None or off[0] == off[1]:
        return ""
    low, high = (published + end for end in off)
    word = "contains" if low <= published <= high else "excludes"
    return f"; the interval of 95 % for the mean, {low:.4g} to {high:.4g}, {word} it"
