"""A step as a box with words in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .canvas import Canvas, Point, fitted
from .parts import Step

TITLE, DETAIL = 13.0, 10.5
"""How large the letters of a box's name are, and of everything else in it."""

LEADING = 13.5
"""From one line to the next."""

SMALL = frozenset({"dropout", "scale"})
"""Sorts of modules that get a small box."""

BADGES = {"only": "+", "changed": "≠"}
"""Signs of the marks, for readers who cannot distinguish the colours."""

Marks = Mapping[str, str]
"""Highlighted steps of a drawing, by place: "only" here, or "changed" here."""


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
        """How high it is."""
        return 10.0 + LEADING * len(self.lines) + (0.0 if self.step.kind in SMALL else 3.0)

    def draw(self, canvas: Canvas, center: Point) -> None:
        """Draw it."""
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
    """Draw the sign of a mark."""
    canvas.circle(center, 8.5, mark)
    canvas.text((center[0], center[1] + 4.6), BADGES[mark], "badge-text bold", size=13)


def measure(step: Step, width: float, marks: Marks, *, detail: str | None = None) -> Box:
    """Text and mark of a step's box.

    Args:
        width: How wide its box is, if it isn't a small one.
        detail: Text below its name, by default all details.
    """
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
