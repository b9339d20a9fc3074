"""Distributions of test statistics: Student's t and its power.

scipy has them, and would be one more dependency of 113 MB, which transformers imports with every model as soon as it is
there. Student's is evaluated in its closed form, its power as a sum over a grid, which for smooth densities that vanish
at both ends is exact to many digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TABLE = np.linspace(-10, 10, 20_001)
"""Where the normal distribution is tabulated: linear in between, that is exact to 3e-8."""


def student_within(t: float, freedom: int) -> float:
    """The probability that Student's t lies between -t and t."""
    return min(max(float(students_within(np.float64(t), freedom)), 0.0), 1.0)


def students_within(t: Array | np.float64, freedom: int) -> Array:
    """The same of many t, negative for a negative one (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    angle = np.arctan(t / math.sqrt(freedom))
    odd, square = freedom % 2, np.cos(angle) ** 2
    term: Any = np.cos(angle) if odd else 1.0
    total: Any = 0.0
    for k in range(freedom // 2):
        total = total + term
        term = term * square * ((2 * k + 2 - (not odd)) / (2 * k + 3 - (not odd)))
    return 2 / math.pi * (angle + np.sin(angle) * total) if odd else np.sin(angle) * total


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """The value below which Student's t lies with a given probability, above one half."""
    return increasing_inverse(lambda t: student_within(t, freedom), 2 * probability - 1)


def power(shift: float, critical: float, freedom: int) -> float:
    """Power of a two-sided t-test with this critical value of the size of t and the noncentrality `shift`."""
    scale, weight = estimated_deviations(freedom)
    low, high = (np.interp(side * shift - critical * scale, TABLE, normal_table()) for side in (-1, 1))
    return float(weight @ (low + high))


@cache
def estimated_deviations(freedom: int) -> tuple[Array, Array]:
    """Standard deviations as they are estimated, in units of the true one, with the probability of each."""
    logarithm = np.linspace(-20 / freedom - 1, math.log1p(7 / math.sqrt(freedom)), 201)
    scale = np.exp(logarithm)
    density = np.exp(freedom * (logarithm - scale**2 / 2 + 0.5))
    return scale, density / density.sum()


@cache
def normal_table() -> Array:
    return np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in TABLE])


def increasing_inverse(function: Callable[[float], float], wanted: float) -> float:
    """Find by halving where a function that grows from 0 on reaches a value."""
    low, high = 0.0, 1.0
    while function(high) < wanted:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return high
