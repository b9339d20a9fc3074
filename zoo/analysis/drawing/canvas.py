"""Shapes and words of an SVG picture, and how much room they take."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from markupsafe import Markup

from .elements import element, lines

Point = tuple[float, float]

CHARACTER = 0.56
"""How wide a letter is on average, as a share of its height: fonts are the reader's, so room is estimated."""

UNBROKEN = "\N{NO-BREAK SPACE}"

ARROW, CORNER = 6.0, 7.0
"""How long arrowheads are, and how round the corners of lines."""


def fitted(text: str, width: float, size: float) -> list[str]:
    """Break a text into lines that fit, between facts rather than inside of them."""
    letters = max(int(width / (size * CHARACTER)), 8)
    facts = (fact.replace(" ", UNBROKEN) if len(fact) < letters else fact for fact in text.split(", "))
    return [line.replace(UNBROKEN, " ") for line in textwrap.wrap(", ".join(facts), letters)]


@dataclass
class Bounds:
    """The rectangle that a picture fills."""

    left: float = 0.0  # Its least x
    top: float = 0.0  # Its least y
    right: float = 0.0  # Its greatest x
    bottom: float = 0.0  # Its greatest y

    @property
    def width(self) -> float:
        """How wide it is."""
        return self.right - self.left

    def include(self, left: float, top: float, right: float, bottom: float) -> None:
        """Grow so as to hold a rectangle."""
        self.left, self.top = min(self.left, left), min(self.top, top)
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)


class Canvas:
    """Collects the elements of a picture; y grows downwards."""

    def __init__(self) -> None:
        self.parts: list[Markup] = []
        self.bounds = Bounds()

    def rectangle(self, center: Point, width: float, height: float, style: str, *, radius: float = 6.0) -> None:
        """Draw a rectangle."""
        x, y = center[0] - width / 2, center[1] - height / 2
        self.bounds.include(x, y, x + width, y + height)
        self.parts.append(element("rect", class_=style, x=x, y=y, width=width, height=height, rx=radius))

    def circle(self, center: Point, radius: float, style: str) -> None:
        """Draw a circle."""
        x, y = center
        self.bounds.include(x - radius, y - radius, x + radius, y + radius)
        self.parts.append(element("circle", class_=style, cx=x, cy=y, r=radius))

    def text(self, at: Point, words: str, style: str, *, size: float, anchor: str = "middle") -> None:
        """Write a line of text."""
        x, y = at
        width = len(words) * size * CHARACTER
        left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        self.bounds.include(left, y - size, left + width, y + size / 3)
        self.parts.append(element("text", words, class_=style, x=x, y=y, font_size=size, text_anchor=anchor))

    def line(self, *points: Point, style: str = "wire", arrow: bool = False) -> None:
        """Draw a line with round corners."""
        for x, y in points:
            self.bounds.include(x, y, x, y)
        end = toward(points[-1], points[-2], ARROW - 1) if arrow else points[-1]
        self.parts.append(element("path", class_=style, d=rounded([*points[:-1], end])))
        if arrow:
            tip, back = points[-1], toward(points[-1], points[-2], ARROW)
            dx, dy = (back[1] - tip[1]) * 0.55, (back[0] - tip[0]) * 0.55
            corners = (tip, (back[0] + dx, back[1] + dy), (back[0] - dx, back[1] - dy))
            self.parts.append(element("path", class_="dot", d=f"M{' L'.join(f'{x:g} {y:g}' for x, y in corners)} Z"))

    @contextmanager
    def group(self, style: str, title: str = "") -> Iterator[None]:
        """Put what is drawn meanwhile into a group."""
        before, self.parts = self.parts, [element("title", title)] if title else []
        yield
        self.parts = [*before, element("g", lines(*self.parts), class_=style)]

    def paste(self, other: Canvas, offset: Point) -> None:
        """Draw another picture here."""
        (x, y), bounds = offset, other.bounds
        self.parts.append(element("g", lines(*other.parts), transform=f"translate({x:g} {y:g})"))
        self.bounds.include(bounds.left + x, bounds.top + y, bounds.right + x, bounds.bottom + y)


def toward(point: Point, target: Point, distance: float) -> Point:
    """Go from one point toward another."""
    dx, dy = target[0] - point[0], target[1] - point[1]
    length = max((dx * dx + dy * dy) ** 0.5, 1e-9)
    share = min(distance / length, 1.0)
    return point[0] + dx * share, point[1] + dy * share


def rounded(points: Sequence[Point]) -> str:
    """Write a line with round corners as the data of an SVG path."""
    words = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        here, there = toward(corner, before, CORNER), toward(corner, after, CORNER)
        words.append(f"L{here[0]:g} {here[1]:g} Q{corner[0]:g} {corner[1]:g} {there[0]:g} {there[1]:g}")
    words.append(f"L{points[-1][0]:g} {points[-1][1]:g}")
    return " ".join(words)
