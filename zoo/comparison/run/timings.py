"""How long a run takes, phase by phase."""

from __future__ import annotations

import time

import psutil

PHASES = {
    "start": "until the process is ready, with the imports that its server has not made",
    "data": "reading and splitting the data",
    "prepare": "tokens, the model, saving it, and evaluations before the last",
    "train": "steps",
    "evaluate": "loss, and what is written, on the held-out examples",
    "measure": "the suite that decides, costs, and answers to compare with",
    "reload": "another process, which loads the model and asks it again",
}
"""The phases of a run in their order, and what is done in each."""


def since_start() -> float:
    """Seconds since this process was started."""
    return time.time() - psutil.Process().create_time()


class Stopwatch:
    """Notes how long each phase of a run takes in this process, from its start."""

    def __init__(self) -> None:
        self.seconds = {"start": since_start()}
        self._since = time.perf_counter()

    def end(self, phase: str, **others: float) -> None:
        now = time.perf_counter()
        self.seconds |= {**others, phase: now - self._since - sum(others.values())}
        self._since = now
