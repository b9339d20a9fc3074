"""Runs that come out the same to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def determinism(*, wanted: bool) -> Iterator[None]:
    """Leave the process as it was, after transformers has made its operations deterministic for good.

    Args:
        wanted: Whether it does; the trainer calls `transformers.enable_full_determinism` then.

    Yields:
        Nothing.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    flags = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    try:
        yield
    finally:
        if wanted:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = flags
