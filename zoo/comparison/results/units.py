"""Numbers with their units, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .statistics import ERROR, PairedDifference

KIBI = 1024

Writer = Callable[[float], str]


def number(decimals: int) -> Writer:
    return lambda value: f"{value:,.{decimals}f}"


def large(value: float) -> str:
    """Write a large number with the three digits that count: "1.90 M"."""
    for power, prefix in enumerate(("", "k", "M", "G", "T", "P", "E")):
        scaled = value / 1000**power
        if scaled < 999.5 or prefix == "E":
            break
    if power == 0:
        return f"{value:.0f}"
    return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {prefix}"


def memory(value: float) -> str:
    """Write a number of bytes: "640 MiB"."""
    mebibytes = value / KIBI**2
    if mebibytes < 9.95:
        return f"{mebibytes:.2g} MiB" if mebibytes >= 1 else f"{value / KIBI:,.0f} KiB"
    return f"{mebibytes:,.0f} MiB" if mebibytes < 10 * KIBI else f"{mebibytes / KIBI:,.1f} GiB"


def milliseconds(value: float) -> str:
    """Write a number of seconds: "4.47 ms"."""
    return f"{1000 * value:.2f} ms"


def percent(value: float) -> str:
    """Write a share from 0 to 1: "17.5 %"."""
    return f"{100 * value:.1f} %"


def duration(value: float) -> str:
    """Write a number of seconds: "41.3 s", "2.1 min", "3.5 h"."""
    if value < 100:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 6000 else f"{value / 3600:.1f} h"


def p_value(p: float) -> str:
    """Write a p-value, "0.042" or "< 0.001", on the side of the tests' error on which it is: "0.0496", not "0.050"."""
    digits = next(digits for digits in range(3, 20) if (float(f"{p:.{digits}f}") < ERROR) == (p < ERROR))
    return "< 0.001" if p < 0.001 else f"{p:.{digits}f}"


def decisive(difference: PairedDifference | None, missing: str = "") -> str:
    """Write the corrected p-value of the test that decides, `missing` where nothing is tested."""
    p = None if difference is None else difference.decisive
    return missing if p is None else p_value(p)


def with_p(p: str) -> str:
    """Write a p-value with its letter: "p = 0.042", "p < 0.001"."""
    return f"p {p}" if p.startswith("<") else f"p = {p}"


def counted(number: int, noun: str) -> str:
    """Write a count with its noun: "1 variant", "7 variants"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def enumerated(roles: Iterable[str]) -> str:
    """Write roles of parameters: "gains and matrices"."""
    plurals = {"matrix": "matrices", "bias": "biases"}
    return " and ".join(plurals.get(role, f"{role}s") for role in sorted(roles))
