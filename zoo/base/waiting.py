"""Waiting for others, and telling Ctrl-C from a KeyboardInterrupt that code raises."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_counted() -> Iterator[list[int]]:
    """Note every Ctrl-C of a block, which still raises KeyboardInterrupt, unless the user's program handles them."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        signal.default_int_handler(number, frame)

    ours = threading.current_thread() is threading.main_thread()
    if not (ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield heard
        return
    signal.signal(signal.SIGINT, hear)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


SHORTLY = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
"""Variables of the environment with which a thread spins for some microseconds and sleeps after that.

By default threads spin for milliseconds: with another process on one of the cores, a step takes several times as long.
Threads that sleep at once are woken by the system between any two products, which costs a small model a third of its
speed where nothing else runs. GNU's OpenMP, PyTorch's on Linux, counts turns; others read the first variable alone.
"""


def short_waits(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Choose how threads wait, for a process that has not imported torch."""
    return {} if SHORTLY.keys() & environment.keys() else dict(SHORTLY)
