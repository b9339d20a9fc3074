"""Differences from the baseline with their corrected intervals: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from zoo.analysis.drawing.elements import element

from ...results.metrics import Metric
from ...results.statistics import BETTER, WORSE
from ...results.summary import VariantSummary
from ...results.units import with_p
from ..formatting import corrected, signed
from ..layout import shortened
from .svg import SERIES, Axis, marker, padded, picture, ticks, title_below

NUMBERS = 165  # Width for the text about variants, next to a wide plot
LETTER = 7.4  # Width of a letter of a name, about

LONGEST_NAME = 46
NARROWEST = 600


def draw_forest(
    main: Metric, variants: Sequence[VariantSummary], baseline: str, width: int, margin: float | None = None
) -> Markup | None:
    """Draw how each variant differs from the baseline, over the band that counts as no difference."""
    rows = [(place, row) for place, row in enumerate(variants) if row.difference is not None]
    if not rows:
        return None
    is_narrow = width < NARROWEST
    names = 30 + LETTER * max(min(LONGEST_NAME, len(row.name)) for _, row in rows)
    height_of_row = 52 if is_narrow else 38
    ends = [0.0] if margin is None else [-margin, margin]
    for _, row in rows:
        ends += interval(row)
    bottom = 14 + height_of_row * len(rows)
    left, right = (12.0, width - 12.0) if is_narrow else (names, float(width - NUMBERS))
    title = f"{main.title}, difference from {baseline}"
    x = Axis(title, *padded(ends, 0.05), left, right, lambda value: short(main, value), 4 if is_narrow else 6)
    drawn = [*ticks(x, 4, bottom), element("line", class_="zero", x1=x(0), x2=x(0), y1=4, y2=bottom)]
    if margin is not None:
        size = dict(x=x(-margin), y=4, width=x(margin) - x(-margin), height=bottom - 4)
        drawn.insert(0, element("rect", class_="margin", **size))
    drawn.append(title_below(x, bottom + 42))
    for line, (place, row) in enumerate(rows):
        drawn.append(draw_row(main, row, place, x, 14 + height_of_row * line, height_of_row, is_narrow=is_narrow))
    about = f"{len(rows)} differences with their intervals after correction; the table holds the numbers"
    return picture(width, bottom + 56, title, about, *drawn)


def interval(row: VariantSummary) -> tuple[float, float]:
    """Find the ends of a difference's interval, or twice its mean without one."""
    assert row.difference is not None
    return row.difference.interval or (row.difference.mean, row.difference.mean)


def draw_row(
    main: Metric, row: VariantSummary, place: int, x: Axis, top: float, height: float, *, is_narrow: bool
) -> Markup:
    """Draw one variant, with its name above instead of next to it in narrow plots."""
    assert row.difference is not None
    low, high = interval(row)
    y = top + (height - 14 if is_narrow else height / 2)
    name = shortened(row.name, LONGEST_NAME // 2 + 3 if is_narrow else LONGEST_NAME)
    numbers = f"{signed(main.write, row.difference.mean)}, {with_p(corrected(row))}"
    style = row.verdict if row.verdict in (BETTER, WORSE) else "noise-word"
    verdict = element("tspan", row.verdict.split(":")[0], class_=style)
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
    mark = marker(place, x(row.difference.mean), y, hollow=row.verdict not in (BETTER, WORSE))
    described = element("title", f"{row.name}: {numbers}, {row.verdict}")
    return element("g", described, *texts, whisker, *caps, mark, data_variant=place)


def short(main: Metric, value: float) -> str:
    """Write a tick with its sign and no more decimals than it needs: "+2"."""
    return "0" if abs(value) < 1e-9 else f"{value:+g}".replace("-", "−")
