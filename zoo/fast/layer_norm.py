"""Layer normalization without the overhead of `torch.nn.functional`."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class QuickLayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm`; `torch.nn.functional.layer_norm` takes twice as long for a single token."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the last dimension. *Shape:* (..., width), unchanged."""
        return torch.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
