"""All charts of the page, each in a size for screens and paper and in one for telephones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from ...results.summary import ComparisonSummary
from .curves import AXES, KINDS, curves_of, draw_curves
from .forest import draw_forest
from .scatter import differs, draw_scatter, pareto, points_of

WIDE, NARROW = 900, 330
"""Widths in which every chart is drawn: on screens and paper, and on telephones."""

SHAPES = {WIDE: 440, NARROW: 360}
"""Height by width."""


FIRST_COSTS = ("training_flops", "parameters", "train_seconds")
"""Costs that the first chart compares with quality."""


@dataclass(frozen=True)
class Chart:
    """A chart in two widths, chosen by its label: for screens and paper, and for telephones."""

    key: str
    label: str
    wide: Markup
    narrow: Markup
    note: str = ""


def forest(summary: ComparisonSummary) -> Chart | None:
    """Draw the differences from the baseline, if there are any."""
    if summary.main is None:
        return None
    shown = summary.main, summary.rows, summary.comparison.baseline
    wide, narrow = (draw_forest(*shown, width, summary.design.margin) for width in (WIDE, NARROW))
    return None if wide is None or narrow is None else Chart("forest", "Differences", wide, narrow)


def curve_charts(summary: ComparisonSummary) -> Iterator[Chart]:
    """Draw everything that was logged, over everything that it can be drawn over."""
    for kind, title in KINDS.items():
        for over, (axis, _) in AXES.items():
            curves = curves_of(summary, kind, over)
            if curves:
                drawn = (draw_curves(curves, kind, over, *shape) for shape in SHAPES.items())
                yield Chart(f"{kind}-{over}", f"{title}, {axis.lower()}", *drawn)


def scatter_charts(summary: ComparisonSummary) -> Iterator[Chart]:
    """Draw quality against every cost that at least two variants have."""
    main = summary.main
    if main is None:
        return
    for cost in summary.metrics:
        points = points_of(summary, main, cost) if cost.is_cost else []
        if len(points) > 1:
            front = ", ".join(point.name for point in pareto(points, main, cost))
            wide, narrow = (draw_scatter(points, main, cost, *shape) for shape in SHAPES.items())
            yield Chart(cost.key, cost.title, wide, narrow, f"On the Pareto front: {front}.")


def first_cost(summary: ComparisonSummary) -> str | None:
    """Choose the first cost of `FIRST_COSTS` that differs between variants, or else the first there is."""
    main = summary.main
    if main is None:
        return None
    known = {column.key: points_of(summary, main, column) for column in summary.metrics if column.is_cost}
    charted = {key: points for key, points in known.items() if len(points) > 1}
    telling = (key for key in FIRST_COSTS if key in charted and differs(charted[key]))
    return next(telling, next(iter(charted), None))
