"""Quality against what it costs, with those that nothing beats in both: the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from zoo.analysis.drawing.elements import element

from ...results.metrics import Metric
from ...results.statistics import pareto_front
from ...results.summary import ComparisonSummary
from ..formatting import number
from ..terminal import shortened
from .svg import SERIES, Axis, frame, line, marker, padded, picture

LETTER = 7.2  # Width of a letter of a label, about
GAP = 13  # From a point to its label

LONGEST_LABEL = 30


@dataclass(frozen=True)
class Point:
    """A variant between mean cost and mean main score, with the standard deviation of the score; both in words."""

    place: int
    name: str
    cost: float
    quality: float
    spread: float
    description: str
    is_ranked: bool = True  # Whether it is among those that lost the fewest runs


def points_of(summary: ComparisonSummary, main: Metric, cost: Metric) -> list[Point]:
    ranked = [row.name for row in summary.ranked(main)]
    return [
        Point(
            place,
            row.name,
            row.samples[cost.key].mean,
            row.samples[main.key].mean,
            row.samples[main.key].deviation or 0.0,
            f"{row.name}: {main.title} {number(main, row)}, {cost.title} {number(cost, row)}",
            row.name in ranked,
        )
        for place, row in enumerate(summary.rows)
        if main.key in row.samples and cost.key in row.samples
    ]


def pareto(points: Sequence[Point], main: Metric, cost: Metric) -> list[Point]:
    """Find the points that no other one beats in quality without costing more, by cost, of those that are ranked."""
    ranked = [point for point in points if point.is_ranked]
    front = pareto_front(ranked, lambda point: (main.better * point.quality, cost.better * point.cost))
    return sorted(front, key=lambda point: point.cost)


def differs(points: Sequence[Point]) -> bool:
    """Whether the dearest costs at least one in a hundred more than the cheapest."""
    costs = [point.cost for point in points]
    return max(costs) > 1.01 * min(costs)


def draw_scatter(points: Sequence[Point], main: Metric, cost: Metric, width: int, height: int) -> Markup:
    front = pareto(points, main, cost)
    reaches = [point.quality + sign * point.spread for point in points for sign in (-1, 1)]
    hints = {1: "more is better", -1: "less is better"}
    costs, count = padded([point.cost for point in points], 0.12), 6 if width > 500 else 3
    x = Axis(f"{cost.title} ({hints[cost.better]})", *costs, 52, width - 16, cost.write, count)
    y = Axis(f"{main.title} ({hints[main.better]})", *padded(reaches, 0.08), height - 52, 28, "{:g}".format, 6)
    drawn = frame(x, y)
    if len(front) > 1:
        drawn.append(element("path", class_="front", d=line([(x(one.cost), y(one.quality)) for one in front])))
    taken = [box(x(one.cost), y(one.quality), 14, 14) for one in points]
    taken += [
        (x(one.cost) - 1, y(one.quality + one.spread), x(one.cost) + 1, y(one.quality - one.spread)) for one in points
    ]
    for point in points:
        at = x(point.cost), y(point.quality)
        parts = [element("title", point.description)]
        if point.spread:
            ends = dict(x1=at[0], x2=at[0], y1=y(point.quality - point.spread), y2=y(point.quality + point.spread))
            parts.append(element("line", class_=f"whisker thin c{point.place % SERIES}", **ends))
        parts.append(marker(point.place, *at, hollow=point not in front))
        drawn.append(element("g", *parts, *labelled(point, *at, taken, x, y), data_variant=point.place))
    names = ", ".join(point.name for point in front)
    return picture(width, height, f"{main.title} by {cost.title}", f"On the Pareto front: {names}", *drawn)


Box = tuple[float, float, float, float]


def box(x: float, y: float, width: float, height: float) -> Box:
    """Make a rectangle around a point: left, top, right, bottom."""
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def labelled(point: Point, at_x: float, at_y: float, taken: list[Box], x: Axis, y: Axis) -> list[Markup]:
    """Write a point's name in a free place, and take it; nowhere without one."""
    name = shortened(point.name, LONGEST_LABEL)
    wide = LETTER * len(name)
    offsets = [(sign, step) for step in (0, -13, 13) for sign in (1, -1)]
    places = [(at_x + sign * GAP, at_y + step, "start" if sign > 0 else "end") for sign, step in offsets]
    for where, middle, anchor in [*places, (at_x, at_y - 16, "middle"), (at_x, at_y + 17, "middle")]:
        center = where + {"start": wide / 2, "middle": 0, "end": -wide / 2}[anchor]
        own = box(center, middle, wide, 13)
        is_inside = own[0] >= x.start and own[2] <= x.end and own[1] >= y.end and own[3] <= y.start
        if is_inside and not any(
            own[0] < other[2] and other[0] < own[2] and own[1] < other[3] and other[1] < own[3] for other in taken
        ):
            taken.append(own)
            return [element("text", name, class_="label", x=where, y=middle + 4, text_anchor=anchor)]
    return []
