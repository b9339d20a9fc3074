"""Readings that take a benchmark's conditions together, or two of its scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.comparison.results.statistics import UNKNOWN, student_interval
from zoo.comparison.results.units import counted, decisive, large
from zoo.data.tasks.metrics import mean_ranks

from ..results.design import Scores, judged, mean_of, measured
from .definition import ACROSS, Benchmark
from .page import spread, title
from .rows import Row

BRACKETS = "In brackets is Student's interval of 95 % for the mean over seeds."
"""Note on readings with intervals. Three seeds are the rule; bootstraps cover the mean in 75 % of cases at best."""

FEWEST_RANKED, ALL_ORDERS = 3, 8
"""Smallest number of variants with a rank correlation, and largest one with all orders tried."""

Point = tuple[float, float | None]
"""Position of a run among the conditions, and its loss; None where it failed or diverged."""


@dataclass(frozen=True)
class Reading:
    """Reading over all conditions of a benchmark."""

    summary: str  # Description of the numbers, in a sentence
    headings: Sequence[str]  # Names of the columns
    rows: Sequence[Sequence[str]]  # A row a variant that was recorded under all conditions, the best first


def valley(benchmark: Benchmark, rows: Iterable[Row]) -> Reading:
    """Measure over how many powers of ten a learning rate may vary.

    A valley is where the loss is at most `across["margin"]` above the variant's own best, straight lines between the
    logarithms of neighbouring rates; it ends at the last good rate where the next run failed or diverged.
    """
    margin = float(benchmark.across["margin"])
    rates = {name: float(benchmark.arguments(name)["arguments"]["learning_rate"]) for name in benchmark.conditions}
    runs = runs_over(benchmark, rows, lambda row: rates[row.condition])
    widths = {name: {seed: width(points, margin) for seed, points in own.items()} for name, own in runs.items()}
    lowest = {name: map(least, own.values()) for name, own in runs.items()}  # near zero: Student's may end below it
    ranked = sorted(runs, key=lambda name: -fmean(widths[name].values()))
    cells = in_words(widths, benchmark, better=1, digits=2)
    return Reading(
        f"The width of the valley: over how many powers of ten the learning rate may vary with a loss that is at most "
        f"{margin:g} above the variant's own best.",
        ("Variant", "Seeds", "Width", "Difference", "p", "Verdict", "Best loss"),
        [[name, str(len(runs[name])), *cells[name], spread(measured(lowest[name]))] for name in ranked],
    )


def power_law(benchmark: Benchmark, rows: Iterable[Row]) -> Reading:
    """Fit a straight line to the logarithms of the loss and of the operations that training took, run by run.

    A variant with a lost run, or one without counted operations, has no line. The crossing of the mean lines of a
    variant and the baseline is given if it is at most ten times outside the measured range.
    """
    runs = runs_over(benchmark, rows, lambda row: row.values.get("training_flops", math.nan))
    lost = {
        name: sum(loss is None or math.isnan(flops) for points in own.values() for flops, loss in points)
        for name, own in runs.items()
    }
    lines = {
        name: {seed: fitted(points) for seed, points in own.items()} for name, own in runs.items() if not lost[name]
    }
    baseline = benchmark.baseline(benchmark.first)
    flops = [x for name in lines for points in runs[name].values() for x, _ in points]
    middle = math.exp(sum(map(math.log, flops)) / len(flops)) if flops else math.nan
    slopes: dict[str, Scores] = {name: {seed: slope for seed, (slope, _) in own.items()} for name, own in lines.items()}
    at_middle = {
        name: [math.exp(offset + slope * math.log(middle)) for slope, offset in own.values()]
        for name, own in lines.items()
    }
    cells = in_words(slopes, benchmark, better=-1, digits=4)

    def row(name: str) -> list[str]:
        if lost[name]:
            return [name, seeds_in_words(len(runs[name]), lost[name]), "", "", "", UNKNOWN, "", ""]
        others = lines.get(baseline, {}) if name != baseline else {}
        crosses = crossing(lines[name], others, (min(flops), max(flops)))
        return [name, str(len(lines[name])), *cells[name], with_interval(at_middle[name], 4), crosses]

    ranked = sorted(lines, key=lambda name: fmean(at_middle[name]))
    return Reading(
        f"The loss as a power of the operations of training: its exponent, the loss at {large(middle)}FLOPs, and where "
        "the line crosses the baseline's.",
        ("Variant", "Seeds", "Exponent", "Difference", "p", "Verdict", "Loss in the middle", "Crosses the baseline at"),
        [row(name) for name in (*ranked, *(name for name in runs if lost[name]))],
    )


def average(benchmark: Benchmark, rows: Iterable[Row]) -> Reading:
    """Average each run's score over the conditions, as tables of several tasks do."""
    means = averages(benchmark, rows)
    better = benchmark.better(benchmark.score)
    cells = in_words(means, benchmark, better=better, digits=2)
    finished = {name: [mean for mean in own.values() if mean is not None] for name, own in means.items()}
    ranked = sorted(means, key=lambda name: -better * fmean(finished[name]) if finished[name] else math.inf)
    return Reading(
        f"The average over {counted(len(benchmark.conditions), 'condition')}, run by run.",
        ("Variant", "Seeds", "Average", "Difference", "p", "Verdict"),
        [
            [name, seeds_in_words(len(means[name]), len(means[name]) - len(finished[name])), *cells[name]]
            for name in ranked
        ],
    )


def rank_correlation(benchmark: Benchmark, rows: Iterable[Row]) -> Reading:
    """Compare the order of variants by the score with their order by the column `across["column"]`.

    Both are means over seeds, under the first condition; a variant with a lost run has no rank. The correlation is
    Spearman's (1904); p is the share of orders, of all that the column could have, with one at least as far from zero.
    """
    columns = benchmark.score, str(benchmark.across["column"])
    found: dict[str, list[list[float | None]]] = {}
    for row in rows:
        if row.condition == benchmark.first:
            found.setdefault(row.variant, []).append([row.number(column) for column in columns])
    scores: dict[str, list[Any]] = {name: own for name, own in found.items() if not any(None in one for one in own)}
    if len(scores) < FEWEST_RANKED:
        return Reading("", (), ())
    means = {name: np.mean(own, axis=0) for name, own in scores.items()}
    better = [benchmark.better(column) for column in columns]
    ranks = [mean_ranks([-sign * mean[place] for mean in means.values()]) for place, sign in enumerate(better)]
    correlation, share = spearman(*ranks)
    loss, other = map(title, columns)
    written = []
    for place, name in sorted(enumerate(means), key=lambda item: ranks[0][item[0]]):
        losses, others = zip(*scores[name], strict=True)
        first, second = (f"{one[place]:g}" for one in ranks)
        written.append([name, str(len(losses)), with_interval(losses, 4), first, with_interval(others, 2), second])
    return Reading(
        f"Rank correlation over {counted(len(means), 'variant')} ({loss}, {other}): {correlation:+.2f} "
        f"(1 where both put variants into the same order, the better first), p = {share:.2g}.",
        ("Variant", "Seeds", loss, "Rank", other, "Rank by it"),
        written,
    )


def spearman(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float]:
    """Correlation of ranks, and the share of permutations at least as far from zero.

    Of many, 10,000 are drawn and the one that was found counts as well (Phipson and Smyth 2010), so no share is zero.
    """
    one, other = one - one.mean(), other - other.mean()
    scale = math.sqrt(float((one @ one) * (other @ other)))
    if scale == 0:
        return 0.0, 1.0
    if len(one) <= ALL_ORDERS:
        orders = np.array(list(permutations(range(len(one)))))
    else:
        orders = np.tile(np.arange(len(one)), (10_001, 1))
        orders[1:] = np.random.default_rng(0).permuted(orders[1:], axis=1)
    found, chances = float(one @ other) / scale, other[orders] @ one / scale
    return found, float(np.mean(np.abs(chances) >= abs(found) - 1e-9))


READINGS: Mapping[str, Callable[[Benchmark, Iterable[Row]], Reading]] = dict(
    zip(ACROSS, (valley, power_law, average, rank_correlation), strict=True)
)


def read_across(benchmark: Benchmark, rows: Iterable[Row], *, data: str | None = None) -> Reading | None:
    if not benchmark.across:
        return None
    compared = list(benchmark.comparable(rows, data))
    reading = READINGS[benchmark.across["reading"]](benchmark, compared)
    if len({row.seed for row in compared}) > 1:  # a single seed has no interval
        reading = replace(reading, summary=f"{reading.summary} {BRACKETS}")
    return reading if reading.rows else None


def runs_over(
    benchmark: Benchmark, rows: Iterable[Row], place: Callable[[Row], float]
) -> dict[str, dict[int, list[Point]]]:
    """Put the rows of each variant and seed that has all conditions into the order of their places."""
    found: dict[str, dict[int, list[Point]]] = {}
    for row in rows:
        if row.condition in benchmark.conditions:
            point = place(row), row.number(benchmark.score)
            found.setdefault(row.variant, {}).setdefault(row.seed, []).append(point)
    whole = len(benchmark.conditions)
    kept = {
        name: {seed: sorted(points, key=lambda point: point[0]) for seed, points in own.items() if len(points) == whole}
        for name, own in found.items()
    }
    return {name: own for name, own in kept.items() if own}


def averages(benchmark: Benchmark, rows: Iterable[Row]) -> dict[str, Scores]:
    """Average over all conditions, by variant and seed; None for a run that is lost under one of them."""
    order = list(benchmark.conditions)
    runs = runs_over(benchmark, rows, lambda row: order.index(row.condition))
    return {
        name: {seed: mean_of([score for _, score in points]) for seed, points in own.items()}
        for name, own in runs.items()
    }


def width(points: Sequence[Point], margin: float) -> float:
    """The powers of ten of learning rates around the best one with a loss at most a margin above its loss."""
    best = least(points)
    if best is None:
        return 0.0
    limit = best + margin
    at = next(index for index, (_, loss) in enumerate(points) if loss == best)
    return reach(points[at:], limit) + reach(points[at::-1], limit)


def reach(points: Sequence[Point], limit: float) -> float:
    """How far the loss stays below a limit, from the first point on, in powers of ten."""
    far = 0.0
    for (here, loss), (there, following) in pairwise(points):
        step = abs(math.log10(there / here))
        if following is None or loss is None:
            return far
        if following > limit:
            return far + step * (limit - loss) / (following - loss)
        far += step
    return far


def least(points: Sequence[Point]) -> float | None:
    """The smallest loss; None where no run has one."""
    return min((loss for _, loss in points if loss is not None), default=None)


def fitted(points: Sequence[Point]) -> tuple[float, float]:
    """Slope and offset of the straight line through the logarithms of points, by least squares."""
    x, y = (np.log([float(value) for value in side if value is not None]) for side in zip(*points, strict=True))
    slope, offset = np.polyfit(x, y, 1)
    return float(slope), float(offset)


def crossing(
    lines: Mapping[int, tuple[float, float]], others: Mapping[int, tuple[float, float]], measured: tuple[float, float]
) -> str:
    """Write at how many operations two mean lines cross; empty where that is far from what was measured."""
    if not others:
        return ""
    (slope, offset), (other_slope, other_offset) = (np.mean(list(each.values()), axis=0) for each in (lines, others))
    if slope == other_slope:
        return ""
    logarithm = (other_offset - offset) / (slope - other_slope)
    low, high = math.log(measured[0] / 10), math.log(10 * measured[1])
    return f"{large(math.exp(logarithm))}FLOPs" if low <= logarithm <= high else ""


def in_words(scores: Mapping[str, Scores], benchmark: Benchmark, *, better: int, digits: int) -> dict[str, list[str]]:
    written = {}
    baseline, design = benchmark.baseline(benchmark.first), replace(benchmark.design, margin=None)
    for name, (difference, word) in judged(scores, baseline, better, design).items():
        mean = None if difference is None else round(difference.mean, digits) + 0.0  # never -0.0
        written[name] = [
            with_interval([value for value in scores[name].values() if value is not None], digits),
            "" if mean is None else f"{mean:+.{digits}f}",
            decisive(difference),
            word,
        ]
    return written


def seeds_in_words(seeds: int, lost: int) -> str:
    """Write a number of seeds: "3", or "3 (1 run lost)"."""
    return f"{seeds} ({counted(lost, 'run')} lost)" if lost else str(seeds)


def with_interval(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    mean = f"{fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    low, high = student_interval(values)
    return f"{mean} ({low:.{digits}f} to {high:.{digits}f})"
