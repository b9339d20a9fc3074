"""How fast this machine multiplies matrices, the yardstick of every model's speed."""

from __future__ import annotations

import time
from functools import cache

import torch
from torch.nn import functional as F

from zoo.fast.int8 import Int8Linear
from zoo.fast.matmul import gain
from zoo.fast.modules import noise_like

SHAPES = {
    "cpu": ((256, 512, 512), (512, 512, 512), (512, 1024, 1024), (1024, 1024, 1024)),
    "cuda": ((2048, 4096, 4096), (4096, 4096, 4096), (8192, 8192, 8192)),
}
"""Rows, inner dimension and columns of the products that are tried, by kind of device."""

SECONDS = 0.1
"""Spent on all of them together."""


def gemm_limit(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> float:
    """Measure how many operations a second matrix products reach at most, once in a process.

    Whatever else happens on the machine makes products slower, never faster: so the fastest of all is taken.

    Returns:
        Operations a second, a multiplication and an addition being two.
    """
    return _gemm_limit(str(device), dtype, torch.get_num_threads())


@cache
def _gemm_limit(device: str, dtype: torch.dtype, threads: int) -> float:
    kind = torch.device(device).type
    shapes = SHAPES.get(kind, SHAPES["cpu"])
    return max(fastest(shape, device, dtype, SECONDS / len(shapes)) for shape in shapes)


def fastest(shape: tuple[int, int, int], device: str, dtype: torch.dtype, seconds: float) -> float:
    """Measure products of one shape."""
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(0)
    left = torch.rand(rows, inner, generator=generator).to(device, dtype)
    right = torch.rand(inner, columns, generator=generator).to(device, dtype)
    product = left @ right
    synchronize(device)
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        torch.mm(left, right, out=product)
        synchronize(device)
        times.append(time.perf_counter() - start)
    return 2 * rows * inner * columns / min(times)


def int8_gain(rows: int) -> float:
    """Measure what a linear layer on int8 weights gains on this CPU, once in a process."""
    return _int8_gain(rows, torch.get_num_threads())


@cache
def _int8_gain(rows: int, threads: int) -> float:
    layer, states = torch.nn.Linear(1024, 4096).requires_grad_(False), torch.rand(rows, 1024)
    quantised = Int8Linear(layer, tokens=rows)
    return gain(lambda: layer(states), lambda: quantised(states))


def dropout_gain() -> float:
    """Measure what dropout of few random bits gains on this CPU."""
    states = torch.rand(2048, 512)
    with torch.random.fork_rng(devices=()):
        return gain(lambda: F.dropout(states, 0.1), lambda: states * noise_like(states, 0.1))


def synchronize(device: torch.device | str) -> None:
    """Synchronize a device."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
