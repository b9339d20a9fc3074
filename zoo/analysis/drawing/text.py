"""Drawings as text: the residual stream runs down the left side, branches leave it to the right and come back."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from .parts import Block, Drawing, Residual, Step, Together, steps_of

LEAST_DETAIL = 24  # Minimum number of columns of details
QUIRK_SIGN = "◂"  # Mark before the quirks that change a step


@dataclass(frozen=True)
class Row:
    """A line of a drawing."""

    figure: str  # Drawn characters
    below: str = ""  # Drawn characters next to further lines of details
    step: Step | None = None  # The step, with the details to write next to it
    remark: str = ""  # Text next to it, where it is no step
    quirks: tuple[str, ...] = ()  # The quirks to name where it is no step

    @property
    def texts(self) -> list[str]:
        """Text next to the figure, as few lines as possible."""
        text, names = (self.remark, self.quirks) if self.step is None else (self.step.detail, self.step.quirks)
        return [part for part in (text, f"{QUIRK_SIGN} {', '.join(names)}" if names else "") if part]


def to_text(drawing: Drawing, width: int | None = 80) -> str:
    """Write a drawing as text.

    Args:
        width: How many columns it may take, None for any number.

    Returns:
        Its lines, of box-drawing characters and words.
    """
    sections = [(block.name, list(block_rows(block))) for block in drawing.blocks]
    if drawing.head:
        sections.append(("head", [Row(f"  {step.label}", "", step) for step in drawing.head]))
    if drawing.rules:
        sections.append(("rules", [Row(f"  {step.label}", "", step) for step in drawing.rules]))
    column = 2 + max(len(row.figure) for _, rows in sections for row in rows if row.texts)
    lines: list[str] = []
    for title, rows in sections:
        lines += ["", title]
        for row in rows:
            lines += with_texts(row, column, width)
    notes: dict[str, dict[str, None]] = {}
    for step in drawing.steps():
        if step.note:
            notes.setdefault(step.note, {})[step.label] = None
    if notes:
        lines += ["", "the variant's own parts"]
    for note, labels in notes.items():
        lines += wrapped(f"  {', '.join(labels)}: {note}", width, "    ")
    return "\n".join(line.rstrip() for line in lines[1:])


def with_texts(row: Row, column: int, width: int | None) -> Iterator[str]:
    room = None if width is None else max(width - column, LEAST_DETAIL)
    texts = [line for text in row.texts for line in wrapped(text, room)]
    figures = [row.figure, *[row.below] * max(len(texts) - 1, 0)]
    for place, figure in enumerate(figures):
        yield f"{figure.ljust(column)}{texts[place]}" if place < len(texts) else figure


def wrapped(text: str, width: int | None, indent: str = "") -> list[str]:
    if width is None:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)


def block_rows(block: Block) -> Iterator[Row]:
    for step in block.before:
        yield Row(f"  {step.label}", "  │", step)
    skips = [step.label for item in block.items if isinstance(item, Residual) for step in item.skip]
    arm = max(6, *map(len, skips)) + 2 if skips else 8
    for number, layer in enumerate(block.layers):
        repeats = f"{layer.repeats} times" if layer.repeats > 1 else "once"
        remark = "; ".join(filter(None, (layer.where, block.remark if number == 0 else "")))
        yield Row(f"╭─┴ {repeats} ───", "│", remark=remark, quirks=block.quirks)
        for item in layer.items:
            if isinstance(item, Step):
                yield Row(f"│ {item.label}", "│ │", item)
            else:
                yield from residual_rows(item, arm)
        yield Row("╰─┬───")
    for step in block.after:
        yield Row(f"  {step.label}", "  │", step)


def residual_rows(residual: Residual, arm: int) -> Iterator[Row]:
    gap = " " * (arm - 1)
    yield Row(f"│ ├{'─' * (arm - 1)}╮")
    skip = list(residual.skip)
    for step in skip:
        yield Row(f"│ {step.label}".ljust(arm + 2) + "│", f"│ │{gap}│", step)
    for item in residual.branch:
        steps = tuple(steps_of(item))
        for place, step in enumerate(steps):
            sign = ""
            if isinstance(item, Together):
                sign = "┌ " if place == 0 else "└ " if place == len(steps) - 1 else "├ "
            below = "│" if not sign or place < len(steps) - 1 else ""
            yield Row(f"│ │{gap}{sign}{step.label}", f"│ │{gap}{below}", step)
        if isinstance(item, Together):
            yield Row(f"│ │{gap}+", f"│ │{gap}│", remark="both read the same input; their outputs are summed")
    yield Row(f"│ + ◄{'─' * (arm - 3)}╯")
    for step in residual.after:
        yield Row(f"│ {step.label}", "│ │", step)
