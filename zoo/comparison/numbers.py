"""How numbers are written for people."""

from __future__ import annotations

from collections.abc import Callable

from .statistics import Sample

KIBI = 1024

NOTHING = "–"
"""Stands where there is no number."""

Writer = Callable[[float], str]


def number(decimals: int) -> Writer:
    """Write numbers with thousands apart.

    Args:
        decimals: How many.

    Returns:
        The writer.
    """
    return lambda value: f"{value:,.{decimals}f}"


def large(value: float) -> str:
    """Write a large number.

    Args:
        value: Not negative.

    Returns:
        For instance "1.90 M"; three digits that count.
    """
    for power, prefix in enumerate(("", "k", "M", "G", "T", "P", "E")):
        scaled = value / 1000**power
        if scaled < 999.5 or prefix == "E":
            break
    if power == 0:
        return f"{value:.0f}"
    return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {prefix}"


def memory(value: float) -> str:
    """Write a number of bytes.

    Args:
        value: Not negative.

    Returns:
        For instance "640 MiB".
    """
    mebibytes = value / KIBI**2
    if mebibytes < 10:
        return f"{mebibytes:.2g} MiB" if mebibytes >= 1 else f"{value / KIBI:,.0f} KiB"
    return f"{mebibytes:,.0f} MiB" if mebibytes < 10 * KIBI else f"{mebibytes / KIBI:,.1f} GiB"


def milliseconds(value: float) -> str:
    """Write a number of seconds.

    Args:
        value: Seconds.

    Returns:
        For instance "4.47 ms".
    """
    return f"{1000 * value:.2f} ms"


def percent(value: float) -> str:
    """Write a share.

    Args:
        value: From 0 to 1.

    Returns:
        For instance "17.5 %".
    """
    return f"{100 * value:.1f} %"


def duration(value: float) -> str:
    """Write a time.

    Args:
        value: Seconds.

    Returns:
        For instance "41.3 s", "2.1 min" or "3.5 h".
    """
    if value < 100:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 6000 else f"{value / 3600:.1f} h"


def signed(write: Writer, value: float) -> str:
    """Write a difference with its sign.

    Args:
        write: How its size is written.
        value: The difference.

    Returns:
        For instance "+0.42" or "−1.30".
    """
    return ("+" if value >= 0 else "−") + write(abs(value))


def p_value(p: float) -> str:
    """Write a p-value.

    Args:
        p: From 0 to 1.

    Returns:
        "= 0.042", or "< 0.001".
    """
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def mean_and_spread(write: Writer, sample: Sample) -> str:
    """Write what is known of a number.

    Args:
        write: How its numbers are written.
        sample: Its measurements.

    Returns:
        The mean, with the standard deviation where there is one to be seen: "41.20 ± 0.53".
    """
    text, _, unit = write(sample.mean).partition(" ")
    spread = spread_beside(write, sample)
    return " ".join(filter(None, (text, spread and f"± {spread}", unit)))


def spread_beside(write: Writer, sample: Sample) -> str:
    """Write a standard deviation in the unit of its mean, and no finer.

    Args:
        write: How the mean is written.
        sample: The measurements.

    Returns:
        The number alone; nothing where it rounds to zero, or there is none.
    """
    text = write(sample.mean).partition(" ")[0].replace(",", "")
    if not sample.deviation or not sample.mean:
        return ""
    decimals = len(text.partition(".")[2])
    spread = f"{sample.deviation * float(text) / sample.mean:,.{decimals}f}"
    return spread if float(spread.replace(",", "")) else ""
