"""How much error each look of a group-sequential test may spend, and what p-values that allows.

Lan and DeMets (1983) spend the error by the share of the data that is there; the share is squared here (Kim and
DeMets 1987). The levels are those of t-tests of normal differences. T, the sum of n of these over the root of their
sum of squares, is a Markov chain: the root is independent of all T so far (Basu 1955), so the next T depends on this
one and on a number that is Student's. The distribution of T is carried from look to look on a grid.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from ..request.seeds import FEWEST_SEEDS
from .distributions import Array, students_within

EDGES = np.sinh(np.linspace(-11, 11, 451))
"""Edges of the grid of t: p-values of 1e-9 lie on it."""

MIDDLES = np.sinh((np.arcsinh(EDGES[1:]) + np.arcsinh(EDGES[:-1])) / 2)


def spent(seeds: int, limit: int) -> float:
    """The share of the error that is spent after some seeds of a limit; nothing before there are three."""
    return (min(seeds, limit) / limit) ** 2 if seeds >= FEWEST_SEEDS else 0.0


def increment(error: float, seeds: int, limit: int) -> float:
    """The error that one look spends: a valid level of any test, which joint distributions do not raise."""
    return error * (spent(seeds, limit) - spent(seeds - 1, limit))


@cache
def levels(error: float, limit: int, sides: int) -> tuple[float, ...]:
    """P-values that decide at each look: after three seeds, after one more, and so on to the limit.

    Args:
        sides: 2 for a test of no difference, 1 for a test against one side.
    """
    found = []
    mass = np.zeros(len(MIDDLES))
    for seeds in range(FEWEST_SEEDS, limit + 1):
        is_first = seeds == FEWEST_SEEDS
        below = student_below(EDGES, seeds - 1) if is_first else mass @ transitions(seeds - 1)
        below = below - below[0]
        critical = -float(np.interp(increment(error, seeds, limit) / sides, below, EDGES))
        tail = (1 - float(students_within(np.float64(critical), seeds - 1))) / 2
        found.append(sides * tail)
        inside = np.clip((EDGES[1:] + critical) / np.diff(EDGES), 0.0, 1.0)
        mass = np.diff(below) * (inside * inside[::-1] if sides == 2 else inside)
    return tuple(found)


@cache
def transitions(seeds: int) -> Array:
    """The probability that t is below each edge after one more seed, for each t of `MIDDLES` after some seeds.

    With v Student's over the root of the number of seeds, the next T is (T + v) / sqrt(1 + v²), which is b where
    (1 - b²) v² + 2 T v + T² - b² = 0.
    """
    now = sum_over_root(MIDDLES, seeds)[:, None]
    b = sum_over_root(EDGES, seeds + 1)[None, :]
    discriminant = now**2 + 1 - b**2
    root = b * np.sqrt(np.maximum(discriminant, 0.0))
    first, second = (-now - root) / (1 - b**2), (-now + root) / (1 - b**2)
    below_first, below_second = (student_below(v * math.sqrt(seeds), seeds) for v in (first, second))
    misses = [np.abs(now + v - b * np.sqrt(1 + v**2)) for v in (first, second)]
    one_root = np.where(misses[0] < misses[1], below_first, below_second)
    between = np.abs(below_first - below_second)
    inner = np.where(np.abs(b) < 1, one_root, np.where(b > 0, 1 - between, between))
    never = (discriminant <= 0) | ((np.abs(b) >= 1) & (now * b <= 0))
    return np.where(never, (b > 0).astype(float), inner)


def sum_over_root(t: Array, seeds: int) -> Array:
    """T for a t of so many numbers."""
    result: Array = t * math.sqrt(seeds) / np.sqrt(seeds - 1 + t**2)
    return result


def student_below(t: Array, freedom: int) -> Array:
    """The probability that Student's t lies below values."""
    return (1 + students_within(t, freedom)) / 2
