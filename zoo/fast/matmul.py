"""Float32 matmul on a CPU by the faster of PyTorch's two libraries."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from threading import Lock

import torch
from torch import Tensor

from .switches import current

PAYS = 1.4
"""Speedup from which oneDNN is used. On some processors both libraries are equal, on others oneDNN is twice as fast;
the threshold lies between, so that the load of the machine does not decide."""

EXACT = 1e-5
"""Largest difference, relative to the largest value, that is rounding. With AMX instructions oneDNN may multiply in
bfloat16, with far larger differences."""

LARGEST = (512, 1024)  # Largest number of tokens and width for which matmuls are measured; larger ones behave alike

ROUNDS = 5


@dataclass(frozen=True)
class Trial:
    """Measurement of an alternative matmul."""

    gain: float  # Speedup over the default
    deviation: float  # Difference from the exact result, relative to the largest value
    needed: float = PAYS  # Speedup required

    @property
    def pays(self) -> bool:
        """Whether the speedup is reached at the same exactness."""
        return self.gain >= self.needed and self.deviation <= EXACT


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


def try_matmul(tokens: int, width: int) -> Trial:
    """Measure the matmul from hidden_size to four times that width, once in a process for about one size."""
    sizes = (min(1 << size.bit_length() - 1, most) for size, most in zip((tokens, width), LARGEST, strict=True))
    return _try_matmul(*sizes, torch.get_num_threads())


@cache
def _try_matmul(tokens: int, width: int, threads: int) -> Trial:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(*shape, generator=generator) for shape in ((tokens, width), (width, 4 * width)))

    def multiply(precision: str | None) -> Tensor:
        if precision is not None:
            torch.set_float32_matmul_precision(precision)
        return left @ right

    with _lock:  # changes the precision of other threads meanwhile, which affects only their speed
        now = chosen_precision()
        usual = _precisions[0] if _precisions else now
        fast = None if now is None else "medium"
        try:
            faster = gain(lambda: multiply(usual), lambda: multiply(fast))
            return Trial(faster, deviation(multiply(fast), left.double() @ right.double()))
        finally:
            multiply(now)


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
def fast_matmul(tokens: int, width: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Multiply float32 matrices by the faster library in this context, if it is as exact."""
    mode = current().onednn_matmul
    on_cpu = torch.device(device).type == "cpu"
    wanted = on_cpu and (mode == "always" or (mode == "auto" and try_matmul(tokens, width).pays))
    with multiplied_by_onednn() if wanted else nullcontext():
        yield
