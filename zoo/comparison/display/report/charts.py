"""All charts of the page, each in a size for screens and paper and in one for telephones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from zoo.analysis.drawing.elements import element

from ...results.metrics import Metric
from ...results.statistics import BETTER, WORSE, PairedDifference, pareto_front
from ...results.summary import ComparisonSummary, VariantSummary
from ...results.units import duration, large, number, with_p
from ...run.record import Run
from .. import formatting
from ..formatting import corrected, signed, span
from ..terminal import shortened
from .svg import DASHES, SERIES, Axis, frame, line, marker, padded, picture, ticks, title_below

KINDS = {"loss": "Training", "heldout_loss": "Held-out", "selection_loss": "Set aside"}
"""Which losses are logged, and what they are called."""

AXES: dict[str, tuple[str, Callable[[float], str]]] = {
    "step": ("Steps", number(0)),
    "tokens": ("Tokens", large),
    "seconds": ("Time", duration),
}
"""Over what it is drawn."""

MOST_POINTS = 120  # Of a line; more are not seen
MARKS = 8  # Markers on a line
LOWEST = 1e-3  # Lower limit of drawn losses: a logarithmic scale has no zero

BEGINNING = 0.08
"""Share of a training, at its start, with losses that may lie above the picture; the rest would be flat otherwise."""


@dataclass(frozen=True)
class Curve:
    """Logged values of a variant's seeds: positions, with lowest, mean and highest value there."""

    place: int
    name: str
    points: list[tuple[float, float, float, float]]
    seeds: int


def curves_of(summary: ComparisonSummary, kind: str, over: str) -> list[Curve]:
    """Find the curves of variants with at least two points, at most about `MOST_POINTS` and always the last."""
    found = []
    for place, row in enumerate(summary.rows):
        points = list(joined(row.finished, kind, over))
        if len(points) > 1:
            stride = -(-len(points) // MOST_POINTS)
            found.append(Curve(place, row.name, points[:-1:stride] + points[-1:], len(row.finished)))
    return found


def joined(runs: list[Run], kind: str, over: str) -> Iterator[tuple[float, float, float, float]]:
    """Join the logs of a variant's runs: mean position, and lowest, mean and highest value, of every common step.

    Of two values of a run at a step, such as of the last evaluation on the way and of the end, the later one counts.
    """
    steps: dict[float, dict[int, tuple[float, float]]] = defaultdict(dict)
    for place, run in enumerate(runs):
        for entry in run.curve:
            if kind in entry and over in entry:
                steps[entry["step"]][place] = (entry[over], entry[kind])
    for step in sorted(steps):
        entries = list(steps[step].values())
        if len(entries) == len(runs):
            values = [value for _, value in entries]
            where = sum(position for position, _ in entries) / len(entries)
            yield where, min(values), sum(values) / len(values), max(values)


def draw_curves(curves: list[Curve], kind: str, over: str, width: int, height: int) -> Markup:
    title, write = AXES[over]
    positions = [point[0] for curve in curves for point in curve.points]
    begins = min(positions) + BEGINNING * (max(positions) - min(positions))
    values = [value for curve in curves for point in curve.points if point[0] >= begins for value in point[1:]]
    count = 6 if width > 500 else 3
    x = Axis(title, min(positions), max(positions), 48, width - 16, write, count)
    low, high = 0.98 * max(min(values), LOWEST), 1.02 * max(*values, 2 * LOWEST)
    y = Axis(f"{KINDS[kind]} loss, nats a label", low, high, height - 52, 28, "{:.3g}".format, 8, is_log=True)
    seeds = span([curve.seeds for curve in curves])
    each = f", each the mean of {seeds} seeds in a band from lowest to highest"
    about = f"{len(curves)} lines{each if seeds != '1' else ''}"
    bands = [band(curve, x, y) for curve in curves if curve.seeds > 1]
    lines = [stroke(curve, x, y) for curve in curves]
    inside = element("svg", *bands, *lines, **clip(x, y))
    return picture(width, height, f"{KINDS[kind]} loss by {title.lower()}", about, *frame(x, y), inside)


def clip(x: Axis, y: Axis) -> dict[str, object]:
    """Cut off what lies above the picture: attributes of a picture in the picture, with the same units."""
    left, top, width, height = x.start - 6, y.end - 2, x.end - x.start + 12, y.start - y.end + 4
    return dict(x=left, y=top, width=width, height=height, viewBox=f"{left} {top} {width} {height}")


def band(curve: Curve, x: Axis, y: Axis) -> Markup:
    """Draw the area from the lowest to the highest of a curve's seeds."""
    upper = [(x(where), y(high)) for where, _, _, high in curve.points]
    lower = [(x(where), y(low)) for where, low, _, _ in reversed(curve.points)]
    kind = f"band c{curve.place % SERIES}"
    return element("path", class_=kind, d=line([*upper, *lower]) + "Z", data_variant=curve.place)


def stroke(curve: Curve, x: Axis, y: Axis) -> Markup:
    """Draw the mean of a curve's seeds, with some markers."""
    points = [(x(where), y(mean)) for where, _, mean, _ in curve.points]
    stride = max(1, len(points) // MARKS)
    offset = curve.place * stride // SERIES % stride
    color, dashes = f"line c{curve.place % SERIES}", DASHES[curve.place % SERIES] or None
    drawn = element("path", class_=color, d=line(points), stroke_dasharray=dashes)
    marks = (marker(curve.place, *point, small=True) for point in points[offset::stride])
    return element("g", element("title", curve.name), drawn, *marks, data_variant=curve.place)


NUMBERS = 165  # Width for the text about variants, next to a wide plot
LETTER = 7.4  # Width of a letter of a name, about

LONGEST_NAME = 46
NARROWEST = 600


def draw_forest(
    main: Metric, variants: Sequence[VariantSummary], baseline: str, width: int, margin: float | None = None
) -> Markup | None:
    """Draw how each variant differs from the baseline, over the band that counts as no difference."""
    rows = [(place, row, row.difference) for place, row in enumerate(variants) if row.difference is not None]
    if not rows:
        return None
    is_narrow = width < NARROWEST
    names = 30 + LETTER * max(min(LONGEST_NAME, len(row.name)) for _, row, _ in rows)
    height_of_row = 52 if is_narrow else 38
    ends = [0.0] if margin is None else [-margin, margin]
    for *_, difference in rows:
        ends += difference.interval or [difference.mean]
    bottom = 14 + height_of_row * len(rows)
    left, right = (12.0, width - 12.0) if is_narrow else (names, float(width - NUMBERS))
    title = f"{main.title}, difference from {baseline}"
    x = Axis(title, *padded(ends, 0.05), left, right, short, 4 if is_narrow else 6)
    drawn = [*ticks(x, 4, bottom), element("line", class_="zero", x1=x(0), x2=x(0), y1=4, y2=bottom)]
    if margin is not None:
        size = dict(x=x(-margin), y=4, width=x(margin) - x(-margin), height=bottom - 4)
        drawn.insert(0, element("rect", class_="margin", **size))
    drawn.append(title_below(x, bottom + 42))
    for index, (place, row, difference) in enumerate(rows):
        top = 14 + height_of_row * index
        drawn.append(draw_row(main, row, difference, place, x, top, is_narrow=is_narrow))
    about = f"{len(rows)} differences with their intervals after correction; the table holds the numbers"
    return picture(width, bottom + 56, title, about, *drawn)


def draw_row(
    main: Metric, row: VariantSummary, difference: PairedDifference, place: int, x: Axis, top: float, *, is_narrow: bool
) -> Markup:
    """Draw one variant, with its name above instead of next to it in narrow plots."""
    mean = difference.mean
    low, high = difference.interval or (mean, mean)
    y = top + (38 if is_narrow else 19)
    name = shortened(row.name, LONGEST_NAME // 2 + 3 if is_narrow else LONGEST_NAME)
    numbers = f"{signed(main.write, mean)}, {with_p(corrected(row))}"
    is_decided = row.verdict in (BETTER, WORSE)
    verdict = element("tspan", row.verdict, class_=row.verdict if is_decided else "noise-word")
    if is_narrow:
        texts = [
            element("text", name, class_="name", x=x.start, y=top + 16),
            element("text", verdict, class_="verdict", x=x.end, y=top + 16, text_anchor="end"),
        ]
    else:
        texts = [
            element("text", name, class_="name", x=x.start - 16, y=y + 4, text_anchor="end"),
            element("text", verdict, class_="verdict", x=x.end + 16, y=y - 3),
            element("text", numbers, class_="tick", x=x.end + 16, y=y + 12),
        ]
    color = f"c{place % SERIES}"
    whisker = element("line", class_=f"whisker {color}", x1=x(low), x2=x(high), y1=y, y2=y)
    caps = [element("line", class_=f"whisker {color}", x1=x(at), x2=x(at), y1=y - 5, y2=y + 5) for at in (low, high)]
    mark = marker(place, x(mean), y, hollow=not is_decided)
    described = element("title", f"{row.name}: {numbers}, {row.verdict}")
    return element("g", described, *texts, whisker, *caps, mark, data_variant=place)


def short(value: float) -> str:
    """Write a tick with its sign and no more decimals than it needs: "+2"."""
    return "0" if abs(value) < 1e-9 else f"{value:+g}".replace("-", "−")


LETTER_OF_LABEL = 7.2  # Width of a letter of a label, about
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
    ranked, found = [row.name for row in summary.ranked(main)], []
    for place, row in enumerate(summary.rows):
        if main.key in row.samples and cost.key in row.samples:
            score, price = row.samples[main.key], row.samples[cost.key].mean
            numbers = (f"{metric.title} {formatting.number(metric, row)}" for metric in (main, cost))
            about, spread = f"{row.name}: {', '.join(numbers)}", score.deviation or 0.0
            found.append(Point(place, row.name, price, score.mean, spread, about, row.name in ranked))
    return found


def pareto(points: Sequence[Point], main: Metric, cost: Metric) -> list[Point]:
    """Find the points that no other one beats in quality without costing more, by cost, of those that are ranked."""
    ranked = [point for point in points if point.is_ranked]
    front = pareto_front(ranked, lambda point: (main.better * point.quality, cost.better * point.cost))
    return sorted(front, key=lambda point: point.cost)


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
    wide = LETTER_OF_LABEL * len(name)
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


WIDE, NARROW = 900, 330  # Widths in which every chart is drawn: on screens and paper, and on telephones
SHAPES = {WIDE: 440, NARROW: 360}  # Height by width
FIRST_COSTS = ("training_flops", "parameters", "train_seconds")  # Costs that the first chart compares with quality


@dataclass(frozen=True)
class Chart:
    """A chart in two widths, chosen by its label: for screens and paper, and for telephones."""

    key: str
    label: str
    wide: Markup
    narrow: Markup
    note: str = ""


def forest(summary: ComparisonSummary) -> Chart | None:
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
    """Choose the first cost of `FIRST_COSTS` that differs between variants, or else the first."""
    main = summary.main
    if main is None:
        return None
    known = {column.key: points_of(summary, main, column) for column in summary.metrics if column.is_cost}
    charted = {key: [point.cost for point in points] for key, points in known.items() if len(points) > 1}
    telling = (key for key in FIRST_COSTS if key in charted and max(charted[key]) > 1.01 * min(charted[key]))
    return next(telling, next(iter(charted), None))
