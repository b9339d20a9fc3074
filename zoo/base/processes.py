"""Settings of processes that compute, which have to be made before torch is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

SHORT_WAITS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
"""Variables of the environment with which a thread spins for some microseconds and sleeps after that.

By default threads spin for milliseconds: with another process on one of the cores, a step takes several times as long.
Threads that sleep at once are woken by the system between any two products, which costs a small model a third of its
speed where nothing else runs. GNU's OpenMP, PyTorch's on Linux, counts turns; others read the first variable alone.
"""

KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "2147483647", "MALLOC_TRIM_THRESHOLD_": "2147483647"}
"""Variables with which glibc keeps memory that is freed.

By default it returns blocks of more than 32 MiB, and every step of a training takes them again, page by page. Pages of
2 MiB, for which PyTorch asks with `THP_MEM_ALLOC_ENABLE`, help less and take more memory.
"""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def process_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Choose variables for a new process, and leave out groups in which the user has set a variable."""
    memory = {} if any(name.startswith(("MALLOC_", "GLIBC_")) for name in environment) else KEPT_MEMORY
    groups = (group for group in (SHORT_WAITS, memory) if not group.keys() & environment.keys())
    return {name: value for group in groups for name, value in group.items()}


def prepare_process() -> None:
    """Set these variables in this process, which has not imported torch, and with it in its children."""
    chosen = process_variables()
    os.environ.update(chosen)
    if sys.platform == "linux" and KEPT_MEMORY.keys() <= chosen.keys():
        import ctypes

        if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # glibc reads its variables at the very beginning
            mallopt(M_MMAP_THRESHOLD, int(KEPT_MEMORY["MALLOC_MMAP_THRESHOLD_"]))
            mallopt(M_TRIM_THRESHOLD, int(KEPT_MEMORY["MALLOC_TRIM_THRESHOLD_"]))
