"""Matmul of float32 matrices on a CPU, by whichever of PyTorch's two libraries is the faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from threading import Lock

import torch
from torch import Tensor

from .switches import current

PAYS = 1.4
"""How many times as fast oneDNN has to be to be taken. There are processors on which both libraries are alike, and such
on which it is twice as fast: between them, so that a busy machine does not decide."""

EXACT = 1e-5
"""The largest difference, relative to the largest value, that is rounding. With AMX instructions oneDNN multiplies in
bfloat16 where it may, which is far above it."""

LARGEST = (512, 1024)
"""Tokens and width up to which matmuls are tried; larger ones behave alike."""

ROUNDS = 5


@dataclass(frozen=True)
class Trial:
    """What came of trying another way to multiply.

    Attributes:
        gain: How many times as fast as the usual way it is.
        deviation: How far its result is from the exact one, relative to the largest value.
        needed: How many times as fast it has to be.
    """

    gain: float
    deviation: float
    needed: float = PAYS

    @property
    def pays(self) -> bool:
        """Whether it is much faster, and no less exact."""
        return self.gain >= self.needed and self.deviation <= EXACT


def compare(usual: Callable[[], object], other: Callable[[], Tensor], exact: Tensor, needed: float = PAYS) -> Trial:
    """Compare two ways to multiply, by speed and by exactness.

    Args:
        exact: The result, in float64.
        needed: How many times as fast the other has to be.
    """
    deviation = float((other().double() - exact).abs().max() / exact.abs().max())
    return Trial(gain(usual, other), deviation, needed)


def gain(usual: Callable[[], object], other: Callable[[], object]) -> float:
    """How many times as fast the other way to do the same is, by the best of `ROUNDS` in turn."""
    times: dict[Callable[[], object], list[float]] = {usual: [], other: []}
    for _ in range(ROUNDS):
        for run, measured in times.items():
            began = time.perf_counter()
            run()
            measured.append(time.perf_counter() - began)
    return min(times[usual]) / min(times[other])


def try_matmul(tokens: int, width: int) -> Trial:
    """Measure the matmul that widens hidden states to four times their size, once in a process for about one size.

    Args:
        tokens: How many there are at a time.
    """
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

    with _lock:  # other threads' precision changes meanwhile, which they notice by the clock alone
        now = chosen_precision()
        usual = _precisions[0] if _precisions else now
        fast = None if now is None else "medium"
        try:
            return compare(lambda: multiply(usual), lambda: multiply(fast), left.double() @ right.double())
        finally:
            multiply(now)


_lock = Lock()
_precisions: list[str | None] = []
"""What precision each thread found that has asked for oneDNN and not finished: the first one found the user's own."""


@contextmanager
def multiplied_by_onednn() -> Iterator[None]:
    """Let oneDNN multiply float32 matrices for a while, in all threads.

    PyTorch asks it to where precision may be "medium", a setting of the process; without AMX instructions it computes
    in float32 all the same. However threads overlap, the last one to finish puts the precision back, unless somebody
    else has chosen one.
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
    """Read what precision float32 matmul has.

    Returns:
        PyTorch's word for it; None where somebody has chosen for each library by itself, which is left alone.
    """
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


@contextmanager
def fast_matmul(tokens: int, width: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Multiply float32 matrices by the faster library for a while, where it is no less exact.

    Args:
        tokens: About how many there are at a time.
        device: Where; elsewhere than on a CPU nothing changes.
    """
    mode = current().onednn_matmul
    on_cpu = torch.device(device).type == "cpu"
    wanted = on_cpu and (mode == "always" or (mode == "auto" and try_matmul(tokens, width).pays))
    with multiplied_by_onednn() if wanted else nullcontext():
        yield
