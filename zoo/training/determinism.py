"""Runs that come out the same to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from zoo.fast.switches import current, fast_paths


@contextmanager
def determinism(*, wanted: bool) -> Iterator[None]:
    """Let no clock decide how a run computes, and leave the process as it was when it ends."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    flags = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    matmul = "never" if wanted and current().onednn_matmul == "auto" else current().onednn_matmul
    try:
        with fast_paths(onednn_matmul=matmul):
            yield
    finally:
        if wanted:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = flags
