"""Precision in which a part computes, independent of the model's."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The precision of what 16 bits are too few for."""
    return torch.promote_types(dtype, torch.float32)


def in_own_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Leave autocast for a while, which would round what a part keeps precise."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


class PreciseBuffers(nn.Module):
    """A module with buffers that are in float32 at least, also after the model was cast to 16 bits."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = {name: one for name, one in self._buffers.items() if one is not None and one.is_floating_point()}
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            changed = self.get_buffer(name)
            if changed.itemsize < torch.float32.itemsize:
                self._buffers[name] = buffer.to(changed.device, torch.float32)
        return self
