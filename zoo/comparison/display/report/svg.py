"""Charts as SVG, made of scales and axes. Colours, fonts and dark mode are the page's style sheet's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from zoo.analysis.drawing.elements import element, rounded

from ...results.units import Writer

SERIES = 8
"""Colours of the style sheet, `--s0` to `--s7`, with as many markers and dashes, so that curves differ by more than
colour."""

DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "9 3 2 3 2 3", "1 3")

# Drawn around the origin, about ten units wide.
MARKERS = (
    "M-4.5,0A4.5,4.5 0 1 0 4.5,0A4.5,4.5 0 1 0 -4.5,0Z",
    "M-4,-4H4V4H-4Z",
    "M0,-5.6L5.6,0L0,5.6L-5.6,0Z",
    "M0,-5L5,4H-5Z",
    "M0,5L5,-4H-5Z",
    "M-1.7,-5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",
    "M-5,-1.5L0,-5.5L5,-1.5L3.2,4.5H-3.2Z",
    "M-5,-4H5L0,0L5,4H-5L0,0Z",
)


@dataclass(frozen=True)
class Axis:
    """A scale."""

    title: str
    low: float
    high: float
    start: float  # Where the first value is drawn
    end: float  # Where the last one is
    write: Writer  # Writes values
    count: int = 5  # About how many ticks it has
    is_log: bool = False  # Whether equal ratios are equally far apart, instead of equal differences

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        if self.is_log:
            share = math.log(max(value, self.low / 2) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round values that divide the scale."""
        if self.is_log and self.high > 10 * self.low:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
            ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
            return [tick for tick in ticks if self.low <= tick <= self.high]
        rough = (self.high - self.low) / self.count  # rounded up to one, two or five times a power of ten
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * place for place in range(first, last + 1)]


def padded(values: Sequence[float], share: float = 0.08) -> tuple[float, float]:
    """Find a range with some room around values, as a share of it; never empty."""
    low, high = min(values), max(values)
    room = share * (high - low) or abs(high) * 0.1 or 1.0
    return low - room, high + room


def frame(x: Axis, y: Axis) -> list[Markup]:
    """Draw the grid, the ticks and the titles of a chart."""
    drawn = []
    for value in y.ticks:
        drawn.append(element("line", class_="grid", x1=x.start, x2=x.end, y1=y(value), y2=y(value)))
        drawn.append(element("text", y.write(value), class_="tick", x=x.start - 8, y=y(value) + 4, text_anchor="end"))
    return [
        *drawn,
        *ticks(x, y.end, y.start),
        element("line", class_="axis", x1=x.start, x2=x.end, y1=y.start, y2=y.start),
        title_below(x, y.start + 40),
        element("text", y.title, class_="title", x=x.start, y=y.end - 10, text_anchor="start"),
    ]


def ticks(x: Axis, top: float, bottom: float) -> list[Markup]:
    """Draw the vertical lines of a grid, and the numbers below."""
    drawn = []
    for value in x.ticks:
        drawn.append(element("line", class_="grid", x1=x(value), x2=x(value), y1=top, y2=bottom))
        drawn.append(element("text", x.write(value), class_="tick", x=x(value), y=bottom + 18, text_anchor="middle"))
    return drawn


def title_below(x: Axis, y: float) -> Markup:
    return element("text", x.title, class_="title", x=(x.start + x.end) / 2, y=y, text_anchor="middle")


def marker(place: int, x: float, y: float, *, hollow: bool = False, small: bool = False) -> Markup:
    kind = "mark hollow" if hollow else "mark"
    size = " scale(0.7)" if small else " scale(1.25)"
    position = f"translate({rounded(float(x))} {rounded(float(y))}){size}"
    return element("path", class_=f"{kind} c{place % SERIES}", d=MARKERS[place % SERIES], transform=position)


def picture(width: int, height: int, title: str, about: str, *children: Markup) -> Markup:
    """Put elements into a picture, with its name and what it shows for those who do not see it."""
    described = element("title", title), element("desc", about)
    return element("svg", *described, *children, class_="chart", role="img", viewBox=f"0 0 {width} {height}")


def line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
