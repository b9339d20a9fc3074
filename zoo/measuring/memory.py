"""How much memory a run needs, told by what is allocated and not by what the system has handed out."""

from __future__ import annotations

from collections.abc import Callable

import torch


def peak_bytes(run: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """Measure how much memory a run takes at its peak, beyond what was allocated before.

    Args:
        run: Does something once.
        device: Where.

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
