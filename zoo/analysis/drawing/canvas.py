"""Shapes, words and boxes of an SVG picture, and their sizes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from markupsafe import Markup

from .elements import element, lines
from .parts import Step

Point = tuple[float, float]

CHARACTER = 0.56
"""How wide a letter is on average, as a share of its height: fonts are the reader's, so room is estimated."""

UNBROKEN = "\N{NO-BREAK SPACE}"

ARROW, CORNER = 6.0, 7.0  # How long arrowheads are, and how round the corners of lines


def fitted(text: str, width: float, size: float) -> list[str]:
    """Break a text into lines that fit, between facts rather than inside of them."""
    letters = max(int(width / (size * CHARACTER)), 8)
    facts = (fact.replace(" ", UNBROKEN) if len(fact) < letters else fact for fact in text.split(", "))
    return [line.replace(UNBROKEN, " ") for line in textwrap.wrap(", ".join(facts), letters)]


class Canvas:
    """Collects the elements of a picture, and the rectangle that they fill; y grows downwards."""

    def __init__(self) -> None:
        self.parts: list[Markup] = []
        self.left = self.top = self.right = self.bottom = 0.0

    def include(self, left: float, top: float, right: float, bottom: float) -> None:
        self.left, self.top = min(self.left, left), min(self.top, top)
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)

    def rectangle(self, center: Point, width: float, height: float, style: str, *, radius: float = 6.0) -> None:
        x, y = center[0] - width / 2, center[1] - height / 2
        self.include(x, y, x + width, y + height)
        self.parts.append(element("rect", class_=style, x=x, y=y, width=width, height=height, rx=radius))

    def circle(self, center: Point, radius: float, style: str) -> None:
        x, y = center
        self.include(x - radius, y - radius, x + radius, y + radius)
        self.parts.append(element("circle", class_=style, cx=x, cy=y, r=radius))

    def text(self, at: Point, words: str, style: str, *, size: float, anchor: str = "middle") -> None:
        x, y = at
        width = len(words) * size * CHARACTER
        left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        self.include(left, y - size, left + width, y + size / 3)
        self.parts.append(element("text", words, class_=style, x=x, y=y, font_size=size, text_anchor=anchor))

    def line(self, *points: Point, style: str = "wire", arrow: bool = False) -> None:
        for x, y in points:
            self.include(x, y, x, y)
        end = toward(points[-1], points[-2], ARROW - 1) if arrow else points[-1]
        self.parts.append(element("path", class_=style, d=rounded([*points[:-1], end])))
        if arrow:
            tip, back = points[-1], toward(points[-1], points[-2], ARROW)
            dx, dy = (back[1] - tip[1]) * 0.55, (back[0] - tip[0]) * 0.55
            corners = (tip, (back[0] + dx, back[1] + dy), (back[0] - dx, back[1] - dy))
            self.parts.append(element("path", class_="dot", d=f"M{' L'.join(f'{x:g} {y:g}' for x, y in corners)} Z"))

    @contextmanager
    def group(self, style: str, title: str = "") -> Iterator[None]:
        before, self.parts = self.parts, [element("title", title)] if title else []
        yield
        self.parts = [*before, element("g", lines(*self.parts), class_=style)]

    def paste(self, other: Canvas, offset: Point) -> None:
        x, y = offset
        self.parts.append(element("g", lines(*other.parts), transform=f"translate({x:g} {y:g})"))
        self.include(other.left + x, other.top + y, other.right + x, other.bottom + y)


def toward(point: Point, target: Point, distance: float) -> Point:
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


TITLE, DETAIL = 13.0, 10.5  # How large the letters of a box's name are, and of everything else in it
LEADING = 13.5  # From one line to the next
SMALL = frozenset({"dropout", "scale"})  # Sorts of modules that get a small box
BADGES = {"only": "+", "changed": "≠"}  # Signs of the marks, for readers who cannot distinguish the colours
Marks = Mapping[str, str]  # Highlighted steps of a drawing, by place: "only" here, or "changed" here


@dataclass(frozen=True)
class Line:
    """A line of text in a box."""

    text: str
    size: float  # How large its letters are
    style: str  # Its classes


@dataclass(frozen=True)
class Box:
    """A step, measured."""

    step: Step
    width: float  # How wide its box is
    lines: tuple[Line, ...] = field(default=())  # Text in it
    mark: str = ""  # Kind of highlighting, if any

    @property
    def height(self) -> float:
        return 10.0 + LEADING * len(self.lines) + (0.0 if self.step.kind in SMALL else 3.0)

    def draw(self, canvas: Canvas, center: Point) -> None:
        quirks = self.step.quirks
        style = f"box {self.step.kind}{' quirk' if quirks else ''}"
        radius = self.height / 2 if self.step.kind in SMALL else 6.0
        with canvas.group("step", f"{self.step.path}{f': {self.step.note}' if self.step.note else ''}"):
            canvas.rectangle(center, self.width, self.height, style, radius=radius)
            if self.mark:
                canvas.rectangle(center, self.width + 7, self.height + 7, f"outline-{self.mark}", radius=radius + 3)
            y = center[1] - LEADING * len(self.lines) / 2 + LEADING * 0.76
            for line in self.lines:
                canvas.text((center[0], y), line.text, line.style, size=line.size)
                y += LEADING
            if self.mark:
                draw_badge(canvas, (center[0] - self.width / 2 - 3, center[1] - self.height / 2 - 3), self.mark)


def draw_badge(canvas: Canvas, center: Point, mark: str) -> None:
    canvas.circle(center, 8.5, mark)
    canvas.text((center[0], center[1] + 4.6), BADGES[mark], "badge-text bold", size=13)


def measure(step: Step, width: float, marks: Marks, *, detail: str | None = None) -> Box:
    """Text and mark of a step's box, of this width unless it is a small one; `detail` in place of all details."""
    small = step.kind in SMALL
    width = min(width, 108.0) if small else width
    room = width - 16
    size = DETAIL if small else TITLE
    lines = [Line(text, size, "text" if small else "text bold") for text in fitted(step.label, room, size)]
    words = step.detail if detail is None else detail
    lines += [Line(text, DETAIL, "soft") for text in fitted(words, room, DETAIL)]
    for quirk in step.quirks:
        lines += [Line(text, DETAIL, "quirk-text bold") for text in fitted(f"⚠ {quirk}", room * 0.92, DETAIL)]
    return Box(step, width, tuple(lines), marks.get(step.path, ""))
