"""Means, deviations, differences and p-values, for people."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.statistics import Measurements
from ..results.units import Writer

NOTHING = "–"
"""Stands where there is no number."""


def span(numbers: Sequence[int]) -> str:
    """Write how many there are where that differs: "3", "3 to 8"."""
    least, most = min(numbers), max(numbers)
    return str(most) if least == most else f"{least} to {most}"


def signed(write: Writer, value: float) -> str:
    """Write a difference with its sign: "+0.42", "−1.30"."""
    return ("+" if value >= 0 else "−") + write(abs(value))


def p_value(p: float) -> str:
    """Write a p-value: "= 0.042", or "< 0.001"."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def mean_and_spread(write: Writer, sample: Measurements) -> str:
    """Write a mean, with the standard deviation where there is one to be seen: "41.20 ± 0.53"."""
    text, _, unit = write(sample.mean).partition(" ")
    spread = spread_beside(write, sample)
    return " ".join(filter(None, (text, spread and f"± {spread}", unit)))


def spread_beside(write: Writer, sample: Measurements) -> str:
    """Write a standard deviation in the unit of its mean, and no finer; nothing where it rounds to zero."""
    text = write(sample.mean).partition(" ")[0].replace(",", "")
    if not sample.deviation or not sample.mean:
        return ""
    decimals = len(text.partition(".")[2])
    spread = f"{sample.deviation * float(text) / sample.mean:,.{decimals}f}"
    return spread if float(spread.replace(",", "")) else ""
