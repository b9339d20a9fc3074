"""Memory of a run, measured by allocations and not by what the system has handed out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Allocations(TorchDispatchMode):
    """Counts the memory of tensors that are made while it is entered, real or fake, until nothing holds them any more.

    Args:
        known: Tensors that are there already, and do not count.

    Attributes:
        held: Bytes that are there now.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.held = self.peak = 0
        self._known = list(known)  # whose places stay taken
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
    """Measure how much memory a run takes at its peak, beyond what was allocated before.

    Returns:
        Bytes of tensors.
    """
    if torch.device(device).type == "cuda":
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
