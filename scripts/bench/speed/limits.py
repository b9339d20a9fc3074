"""Limits that no program can exceed on a device."""

from __future__ import annotations

import re
import time

import torch
from torch import nn

from zoo.analysis.measuring.machine import SHAPES, fastest, synchronize

PEAKS = {"H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "RTX 4090": 165e12}
"""Operations a second that makers state for dense products in bfloat16 with float32 sums, by parts of names."""

SECONDS = 0.4
"""Spent on products before every workload."""

TABLE = 1 << 26
"""Numbers that are summed to see how fast memory is read: more than caches hold."""


def peak(device: torch.device, dtype: str) -> float | None:
    """Operations a second that a device's maker states; None where nothing is known."""
    if device.type != "cuda" or dtype != "bfloat16":
        return None
    name = torch.cuda.get_device_name(device)
    return next((stated for part, stated in PEAKS.items() if part in name), None)


def products(device: torch.device, dtype: torch.dtype) -> float:
    """Measure how fast matrices are multiplied, at every call: a busy machine makes it slower, never faster."""
    shapes = SHAPES.get(device.type, SHAPES["cpu"])
    return max(fastest(shape, str(device), dtype, SECONDS / len(shapes)) for shape in shapes)


def bandwidth(device: torch.device) -> float:
    """Measure how many bytes of memory are read a second, by summing a large table."""
    table = torch.ones(TABLE, device=device)
    times = []
    for _ in range(6):
        synchronize(device)
        start = time.perf_counter()
        table.sum()
        synchronize(device)
        times.append(time.perf_counter() - start)
    return table.nbytes / min(times)


NOT_READ = re.compile(r"(^|\.)encoder\.|position|wpe|(cross|encoder)_attn\.[kv]_proj")
"""Names of weights that a written token does not need: the encoder's, tables, and what makes cached keys and values."""


def bytes_a_token(model: nn.Module) -> int:
    """Bytes of the weights that are read for every written token; an embedding counts where it is the output, too."""
    embedding = getattr(model, "get_output_embeddings", lambda: None)()
    tied = () if embedding is None else (id(embedding.weight),)
    looked_up = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)} - {*tied}
    read = [(name, weight) for name, weight in model.named_parameters() if id(weight) not in looked_up]
    return sum(weight.nbytes for name, weight in read if not NOT_READ.search(name) or id(weight) in tied)
