"""How threads of OpenMP wait for each other, which decides what small models cost on several cores."""

from __future__ import annotations

import os
from collections.abc import Mapping

SHORTLY = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
"""Variables of the environment with which a thread spins for some microseconds and sleeps after that.

By default threads spin for milliseconds: with another process on one of the cores, a step takes several times as long.
Threads that sleep at once are woken by the system between any two products, which costs a small model a third of its
speed where nothing else runs. GNU's OpenMP, PyTorch's on Linux, counts turns; others read the first variable alone.
"""


def short_waits(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Choose how threads wait, for a process that has not imported torch."""
    return {} if SHORTLY.keys() & environment.keys() else dict(SHORTLY)
