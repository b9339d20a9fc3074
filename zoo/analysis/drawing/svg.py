"""Drawings as SVG: boxes and arrows, as papers draw them."""

from __future__ import annotations

import csv
import zlib
from itertools import takewhile
from pathlib import Path

from markupsafe import Markup

from .canvas import CHARACTER, Canvas, Marks, draw_badge, fitted
from .columns import GAP, WIDTH, Column
from .elements import element, lines
from .layers import compare
from .parts import Drawing, notes_of
from .text import to_text

with Path(__file__).with_name("colours.csv").open(encoding="utf-8", newline="") as palette:
    COLOURS = [(row["property"], row["name"], (row["light"], row["dark"])) for row in csv.DictReader(palette)]
"""Colours by property and class: the fill of areas and letters, and the stroke of lines; on light and dark paper."""

SHAPES = """
.zoo-drawing text{font-family:system-ui,-apple-system,"Segoe UI","Helvetica Neue",Arial,"Liberation Sans",sans-serif}
.zoo-drawing .bold{font-weight:600}
.zoo-drawing .box{stroke-width:1.2}
.zoo-drawing path.wire,.zoo-drawing path.shared,.zoo-drawing path.divider{fill:none}
.zoo-drawing .wire{stroke-width:1.5}
.zoo-drawing .shared{stroke-width:1.5;stroke-dasharray:2 4;stroke-linecap:round}
.zoo-drawing .quirk{stroke-width:2;stroke-dasharray:6 3}
.zoo-drawing .sum,.zoo-drawing .frame,.zoo-drawing .card{stroke-width:1.3}
.zoo-drawing .outline-only{fill:none;stroke-width:2.6}
.zoo-drawing .outline-changed{fill:none;stroke-width:2.6;stroke-dasharray:9 4}
"""


def rules(paper: int) -> str:
    return "".join(f".zoo-drawing .{name}{{{key}:{pair[paper]}}}\n" for key, name, pair in COLOURS)


MARGIN = 24.0  # White space around a picture
BETWEEN = 96.0  # White space between two stacks

OUTPUTS = {
    "causal-lm": "scores of the next token",
    "seq2seq-lm": "scores of the next token",
    "masked-lm": "scores of the masked tokens",
    "sequence-classification": "scores of the labels",
    "token-classification": "scores of every token's labels",
}
"""Output at the top, by task; hidden states otherwise."""


def to_svg(drawing: Drawing) -> str:
    """Write a drawing as SVG.

    It follows the reader's preference for light or dark paper; its text is text, and its description has the
    same facts for screen readers.
    """
    canvas = picture(drawing, {})
    caption(canvas, drawing, canvas.left, canvas.top, canvas.right - canvas.left)
    return document(canvas, drawing.name, to_text(drawing, None))


def to_svg_beside(a: Drawing, b: Drawing) -> str:
    """Write two drawings side by side as an SVG document, and mark in what they differ."""
    comparison = compare(a, b)
    pictures = [picture(drawing, marks) for drawing, marks in zip((a, b), comparison.marks, strict=True)]
    canvas = Canvas()
    lefts = (0.0, pictures[0].right - pictures[0].left + BETWEEN)
    for one, left in zip(pictures, lefts, strict=True):
        canvas.paste(one, (left - one.left, 0))
    divider = lefts[1] - BETWEEN / 2
    canvas.line((divider, canvas.top), (divider, canvas.bottom), style="divider")
    top = canvas.top
    for drawing, one, left in zip((a, b), pictures, lefts, strict=True):
        caption(canvas, drawing, left, top, one.right - one.left)
    legend(canvas)
    words = "\n".join(comparison.words) or "They do not differ."
    return document(canvas, f"{a.name} next to {b.name}", words)


SMALLEST_NAME = 11.0  # Height of letters below which a drawing's name is broken into lines


def caption(canvas: Canvas, drawing: Drawing, left: float, top: float, width: float) -> None:
    name, size = drawing.name, min(18.0, width / (len(drawing.name) * CHARACTER))
    rows = [name]
    if size < SMALLEST_NAME:  # broken before each quirk and after each setting
        size = SMALLEST_NAME
        rows = fitted(name.replace("+", " +").replace(",", ", "), 0.85 * width, size)  # bold letters are wider
    for place, row in enumerate(reversed(rows)):
        canvas.text((left, top - 26 - 1.3 * size * place), row, "text bold", size=size, anchor="start")
    canvas.text((left, top - 7), drawing.task, "soft", size=12, anchor="start")


def legend(canvas: Canvas) -> None:
    y = canvas.bottom + 34
    for x, mark, words in ((12, "only", "only on this side"), (172, "changed", "on both sides, but not the same")):
        draw_badge(canvas, (x, y - 4), mark)
        canvas.text((x + 16, y), words, "text", size=12, anchor="start")


def picture(drawing: Drawing, marks: Marks) -> Canvas:
    canvas = Canvas()
    columns = []
    x = 0.0
    for number, block in enumerate(drawing.blocks):
        several = len(drawing.blocks) > 1
        column = Column(block, side=1 if number else -1, marks=marks)
        column.draw(("source tokens", "target tokens so far")[number] if several else "tokens")
        if number == len(drawing.blocks) - 1:
            for step in drawing.head:
                column.trunk(step)
            column.rise(GAP + 4)
            column.canvas.text((0, column.y - 8), OUTPUTS.get(drawing.task, "hidden states"), "soft", size=12)
        offset = x - column.canvas.left
        columns.append((column, offset))
        x = offset + column.canvas.right + BETWEEN
    lend(columns)
    for column, offset in columns:
        canvas.paste(column.canvas, (offset, 0))
    if len(columns) > 1:
        remember(canvas, *columns)
    footnotes(canvas, drawing, marks)
    return canvas


def remember(canvas: Canvas, encoder: tuple[Column, float], decoder: tuple[Column, float]) -> None:
    """Draw how the encoder's output reaches cross-attention."""
    (source, start), (target, end) = encoder, decoder
    top = source.y
    corridor = start + source.canvas.right + BETWEEN * 0.45
    for box, (x, y) in target.boxes.values():
        if box.step.kind == "cross-attention":
            arrival = (end + x - box.width / 2, y)
            canvas.line((start, top), (start, top - 22), (corridor, top - 22), (corridor, y), arrival, arrow=True)


def lend(columns: list[tuple[Column, float]]) -> None:
    """Link the steps that share weights by dotted lines, along the side where no skip connection runs."""
    for column, _ in columns:
        free = -column.side
        reach = 0
        for path, (box, (x, y)) in column.boxes.items():
            if not box.step.lender:
                continue
            lender = box.step.lender if box.step.lender in column.boxes else sibling(column, path, box.step.lender)
            if lender is None:
                continue
            other, (x2, y2) = column.boxes[lender]
            inside = ".layers." in path and ".layers." in lender
            reach += not inside
            out = free * (max(box.width, other.width) / 2 + 13) if inside else free * (column.reach + 26 + 12 * reach)
            low, high = y2 - other.height * 0.22, y + box.height * 0.26
            start, end = (x2 + free * other.width / 2, low), (x + free * box.width / 2, high)
            column.canvas.line(start, (out, low), (out, high), end, style="shared")


def sibling(column: Column, path: str, lender: str) -> str | None:
    """Find a step in the same stack that has the same weights from elsewhere."""
    before = takewhile(lambda other: other != path, column.boxes)
    return next((other for other in before if column.boxes[other][0].step.lender == lender), None)


def footnotes(canvas: Canvas, drawing: Drawing, marks: Marks) -> None:
    """Write below a picture what has no place in it: rules, and what the variant's own parts do."""
    y, left = canvas.bottom + 26, canvas.left
    width = max(canvas.right - left, WIDTH)
    words: list[tuple[str, str, str]] = []
    for step in drawing.rules:
        text = f"{step.label}: {step.detail}{f'. {step.note}' if step.note else ''}"
        words.append((text, "text", marks.get(step.path, "")))
        words += [(f"⚠ {quirk}", "quirk-text bold", "") for quirk in step.quirks]
    words += [(note, "soft", "") for note in notes_of(step for step in drawing.steps() if step.kind != "rule")]
    for text, style, mark in words:
        if mark:
            draw_badge(canvas, (left - 14, y - 4), mark)
        for line in fitted(text, width, 11):
            canvas.text((left, y), line, style, size=11, anchor="start")
            y += 15


def document(canvas: Canvas, title: str, description: str) -> str:
    x, y = canvas.left - MARGIN, canvas.top - MARGIN
    width, height = canvas.right - x + MARGIN, canvas.bottom - y + MARGIN
    name = f"zoo-{zlib.crc32((title + description).encode()):08x}"
    drawn = element(
        "svg",
        lines(
            element("title", title, id=f"{name}-title"),
            element("desc", description, id=f"{name}-desc"),
            element("style", Markup(f"{rules(0)}{SHAPES}@media (prefers-color-scheme:dark){{\n{rules(1)}}}\n")),
            element("rect", class_="paper", x=x, y=y, width=width, height=height),
            *canvas.parts,
        ),
        xmlns="http://www.w3.org/2000/svg",
        class_="zoo-drawing",
        role="img",
        viewBox=f"{x:g} {y:g} {width:g} {height:g}",
        width=width,
        height=height,
        style="max-width:100%;height:auto",
        aria_labelledby=f"{name}-title {name}-desc",
    )
    return f"{drawn}\n"
