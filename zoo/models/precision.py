"""Precision in which a part computes, independent of the model's."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The precision of what 16 bits are too few for."""
    return torch.promote_types(dtype, torch.float32)


def in_own_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Leave autocast for a while, which would round what a part keeps precise."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
