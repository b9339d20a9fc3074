"""Huge pages for weights that are read from memory in every decode step.

A processor reads ahead within a page: of pages of 4 KiB it reads weights for a single row slower than of
pages of 2 MiB, which Linux gives to memory that asks for them. Elsewhere memory is as ever.
"""

import mmap
from contextlib import suppress

import torch
from torch import Tensor

CHUNK = 1 << 26
"""Bytes that are reserved at a time, so that small weights share pages. They take memory as they are written."""

ALIGNMENT = 64  # Bytes of a cache line, at which every copy begins


class HugePages:
    """Reserves memory for copies, which live as long as they are used."""

    def __init__(self) -> None:
        self.free = torch.empty(0, dtype=torch.uint8)

    def copy(self, tensor: Tensor) -> Tensor:
        size = -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        if size > len(self.free):
            self.free = reserve(max(size, CHUNK))
        taken, self.free = self.free[: tensor.nbytes], self.free[size:]
        return taken.view(tensor.dtype).view(tensor.shape).copy_(tensor)


def reserve(size: int) -> Tensor:
    """Bytes of zeros that no memory is taken for yet."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):  # not Linux
        return torch.empty(size, dtype=torch.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
