"""Float32 matmul by the faster of PyTorch's two libraries, and measurements of products that differ by rounding.

No clock chooses the library: they round differently, and a run must compute the same numbers each time. `zoo.generate`
keeps MKL, whose products of few rows are as fast.
"""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from threading import Lock

import torch
from torch import Tensor

from zoo.base.processor import processor_facts

from .switches import current

EXACT = 1e-5
"""Largest difference, relative to the largest value, that is rounding."""

ROUNDS = 5


def deviation(result: Tensor, exact: Tensor) -> float:
    """Largest difference from an exact result in float64, relative to its largest value."""
    return float((result.double() - exact).abs().max() / exact.abs().max())


def gain(usual: Callable[[], object], other: Callable[[], object]) -> float:
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


@cache
def onednn_pays() -> bool:
    """Whether oneDNN is faster and as exact: on an AMD processor with AVX-512, which MKL does not use there."""
    maker = processor_facts().get("vendor_id") or platform.processor()
    widest = torch.backends.mkl.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return widest and "AuthenticAMD" in maker and deviation_of_onednn() <= EXACT


@cache
def deviation_of_onednn() -> float:
    """Difference of oneDNN's matmul from the exact one: with AMX instructions it may multiply in bfloat16."""
    left, right = factors()
    with multiplied_by_onednn():
        return deviation(left @ right, left.double() @ right.double())


def factors() -> tuple[Tensor, Tensor]:
    """Matrices to compare the libraries by, small next to a training step's: (64, 1024) and (1024, 256)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(64, 1024, generator=generator), torch.randn(1024, 256, generator=generator)


_lock = Lock()
_precisions: list[str | None] = []
"""Precision that each thread using oneDNN found at its start: the first is the user's own."""


@contextmanager
def multiplied_by_onednn() -> Iterator[None]:
    """Let oneDNN multiply float32 matrices in this context, in all threads.

    PyTorch uses oneDNN if the global matmul precision is "medium"; without AMX instructions it still computes in
    float32. If threads overlap, the last one restores the precision, unless the user has set another meanwhile.
    """
    with _lock:
        _precisions.append(chosen_precision())
        if _precisions[-1] is not None:
            torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        with _lock:
            before = _precisions.pop()
            if not _precisions and before is not None and chosen_precision() == "medium":
                torch.set_float32_matmul_precision(before)


def chosen_precision() -> str | None:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


@contextmanager
def fast_matmul(device: torch.device | str = "cpu") -> Iterator[None]:
    """Multiply float32 matrices by the faster library in this context, if it is as exact."""
    mode = current().onednn_matmul
    on_cpu = torch.device(device).type == "cpu"
    wanted = on_cpu and (mode == "always" or (mode == "auto" and onednn_pays()))
    with multiplied_by_onednn() if wanted else nullcontext():
        yield
