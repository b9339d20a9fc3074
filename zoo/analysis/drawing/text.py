"""Drawings as text: the residual stream runs down the left side, branches leave it to the right and come back."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from .parts import Block, Drawing, Residual, Step, notes_of, roles

LEAST_DETAIL = 24  # Minimum number of columns of details
QUIRK_SIGN = "◂"  # Mark before the quirks that change a step


class Row(NamedTuple):
    """A line of a drawing."""

    figure: str  # Drawn characters
    below: str = ""  # Drawn characters next to further lines of text
    texts: tuple[str, ...] = ()  # Text next to it


def row(figure: str, below: str, step: Step) -> Row:
    return Row(figure, below, texts(step.detail, step.quirks))


def texts(detail: str, quirks: tuple[str, ...]) -> tuple[str, ...]:
    """Details and quirks, as few lines as possible."""
    return tuple(filter(None, (detail, f"{QUIRK_SIGN} {', '.join(quirks)}" if quirks else "")))


def to_text(drawing: Drawing, width: int | None = 80) -> str:
    """Write a drawing as text.

    Args:
        width: How many columns it may take, None for any number.

    Returns:
        Its lines, of box-drawing characters and words.
    """
    sections = [(block.name, list(block_rows(block))) for block in drawing.blocks]
    for title, steps in (("head", drawing.head), ("rules", drawing.rules)):
        if steps:
            sections.append((title, [row(f"  {step.label}", "", step) for step in steps]))
    column = 2 + max(len(one.figure) for _, rows in sections for one in rows if one.texts)
    lines: list[str] = []
    for title, rows in sections:
        lines += ["", title]
        for one in rows:
            lines += with_texts(one, column, width)
    if notes := notes_of(drawing.steps()):
        lines += ["", "the variant's own parts"]
    for note in notes:
        lines += wrapped(f"  {note}", width, "    ")
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
        yield row(f"  {step.label}", "  │", step)
    skips = [step.label for step, role in roles(block.items) if role == "skip"]
    arm = max(6, *map(len, skips)) + 2 if skips else 8
    for number, layer in enumerate(block.layers):
        repeats = f"{layer.repeats} times" if layer.repeats > 1 else "once"
        remark = "; ".join(filter(None, (layer.where, block.remark if number == 0 else "")))
        yield Row(f"╭─┴ {repeats} ───", "│", texts(remark, block.quirks))
        for item in layer.items:
            if isinstance(item, Step):
                yield row(f"│ {item.label}", "│ │", item)
            else:
                yield from residual_rows(item, arm)
        yield Row("╰─┬───")
    for step in block.after:
        yield row(f"  {step.label}", "  │", step)


def residual_rows(residual: Residual, arm: int) -> Iterator[Row]:
    gap = " " * (arm - 1)
    yield Row(f"│ ├{'─' * (arm - 1)}╮")
    for step in residual.skip:
        yield row(f"│ {step.label}".ljust(arm + 2) + "│", f"│ │{gap}│", step)
    for item in residual.branch:
        if isinstance(item, Step):
            yield row(f"│ │{gap}{item.label}", f"│ │{gap}│", item)
            continue
        *others, last = item.steps
        for sign, step in zip("┌" + "├" * len(others), others, strict=False):
            yield row(f"│ │{gap}{sign} {step.label}", f"│ │{gap}│", step)
        yield row(f"│ │{gap}└ {last.label}", f"│ │{gap}", last)
        yield Row(f"│ │{gap}+", f"│ │{gap}│", ("both read the same input; their outputs are summed",))
    yield Row(f"│ + ◄{'─' * (arm - 3)}╯")
    for step in residual.after:
        yield row(f"│ {step.label}", "│ │", step)
