"""Speed of this machine's matrix products, and memory by allocations."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.base.errors import UnsupportedOperationError
from zoo.fast.int8 import Int8Linear
from zoo.fast.matmul import factors, gain, multiplied_by_onednn
from zoo.fast.modules import noise_like


class Allocations(TorchDispatchMode):
    """Counts the bytes of tensors, real or fake, that are made while it is entered, until they are freed."""

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.held = self.peak = 0
        self._known = list(known)  # which keep their places
        self._places = {tensor.untyped_storage()._cdata for tensor in self._known}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(output):
            if isinstance(leaf, Tensor):
                self.see(leaf)
        return output

    def see(self, tensor: Tensor) -> None:
        """Count a tensor's memory, unless it is another's."""
        storage = tensor.untyped_storage()
        place, size = storage._cdata, storage.nbytes()
        if place in self._places:
            return
        self._places.add(place)
        self.held += size
        self.peak = max(self.peak, self.held)
        weakref.finalize(storage, self._free, place, size)

    def _free(self, place: int, size: int) -> None:
        self._places.discard(place)
        self.held -= size


def peak_bytes(run: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """Bytes of tensors that a run takes at its peak, beyond what was allocated before; on CPUs and CUDA devices.

    Raises:
        UnsupportedOperationError: For another kind of device.
    """
    kind = torch.device(device).type
    if kind not in ("cpu", "cuda"):
        raise UnsupportedOperationError(f"peak memory is measured on cpu and cuda, not on {kind}")
    if kind == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    results = profile.profiler.kineto_results if profile.profiler is not None else None
    held = peak = 0
    for event in results.events() if results is not None else ():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


SHAPES = {
    "cpu": ((256, 512, 512), (512, 512, 512), (512, 1024, 1024), (1024, 1024, 1024)),
    "cuda": ((2048, 4096, 4096), (4096, 4096, 4096), (8192, 8192, 8192)),
}
"""Rows, inner dimension and columns of the products that are tried, by kind of device."""

SECONDS = 0.1  # Spent on all of them together


def gemm_limit(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> float:
    """Measure how many operations a second matrix products reach at most, once in a process.

    Other work on the machine makes products slower, never faster, so the fastest of all is taken.
    """
    return _gemm_limit(str(device), dtype, torch.get_num_threads())


@cache
def _gemm_limit(device: str, dtype: torch.dtype, threads: int) -> float:
    kind = torch.device(device).type
    shapes = SHAPES.get(kind, SHAPES["cpu"])
    return max(fastest(shape, device, dtype, SECONDS / len(shapes)) for shape in shapes)


def fastest(shape: tuple[int, int, int], device: str, dtype: torch.dtype, seconds: float) -> float:
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(0)
    left = torch.rand(rows, inner, generator=generator).to(device, dtype)
    right = torch.rand(inner, columns, generator=generator).to(device, dtype)
    product = left @ right
    return 2 * rows * inner * columns / min(durations(lambda: torch.mm(left, right, out=product), device, seconds))


def durations(run: Callable[[], object], device: torch.device | str, seconds: float) -> list[float]:
    """Seconds that a run takes, for as long as is given and at least three times."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < seconds:
        synchronize(device)
        start = time.perf_counter()
        run()
        synchronize(device)
        times.append(time.perf_counter() - start)
    return times


def onednn_gain() -> float:
    """Measure what multiplying float32 matrices by oneDNN gains on this CPU."""
    left, right = factors()

    def multiply() -> Tensor:
        with multiplied_by_onednn():
            return left @ right

    return gain(lambda: left @ right, multiply)


def int8_gain(rows: int) -> float:
    """Measure what a linear layer on int8 weights gains on this CPU."""
    layer, states = torch.nn.Linear(1024, 4096).requires_grad_(False), torch.rand(rows, 1024)
    quantised = Int8Linear(layer, tokens=rows)
    return gain(lambda: layer(states), lambda: quantised(states))


def dropout_gain() -> float:
    """Measure what dropout of few random bits gains on this CPU."""
    states = torch.rand(2048, 512)
    with torch.random.fork_rng(devices=()):
        return gain(lambda: F.dropout(states, 0.1), lambda: states * noise_like(states, 0.1))


def synchronize(device: torch.device | str) -> None:
    if torch.device(device).type != "cpu":
        torch.accelerator.synchronize(device)
