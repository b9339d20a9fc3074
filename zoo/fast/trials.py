"""Measurements of implementations that differ only by rounding."""

import time
from collections.abc import Callable, Sequence

from torch import Tensor

EXACT = 1e-5
"""Largest difference, relative to the largest value, that is rounding."""

ROUNDS = 5


def deviation(result: Tensor, exact: Tensor) -> float:
    """Largest difference from an exact result in float64, relative to its largest value."""
    return float((result.double() - exact).abs().max() / exact.abs().max())


def gain(usual: Callable[[], object], other: Callable[[], object]) -> float:
    """Speedup of the second implementation."""
    times = fastest_times((usual, other))
    return times[0] / times[1]


def fastest_times(
    runs: Sequence[Callable[[], object]], before: Sequence[Callable[[], object]] | None = None
) -> list[float]:
    """Seconds of each run, the best of `ROUNDS` in turns; before every run, what `before` has for it is called."""
    measured: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, prepare, seconds in zip(runs, before or [lambda: None] * len(runs), measured, strict=True):
            prepare()
            began = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - began)
    return [min(seconds) for seconds in measured]
