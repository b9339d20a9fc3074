"""Identity without a call: an empty slot costs what looking at it costs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .hook_detection import is_watched


class Identity(nn.Identity):
    """`torch.nn.Identity` that is not called where nobody watches.

    `nn.Module.__call__` takes as long as a small operation, and a decode step meets dozens of empty slots.
    """

    def __call__(self, states: Tensor) -> Any:
        """Return the states. *Shape:* any."""
        return super().__call__(states) if is_watched(self) else states
