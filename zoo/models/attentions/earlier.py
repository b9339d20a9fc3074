"""Base of attentions with layers that read tensors of earlier layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from zoo.base.errors import ConfigError, InputError

from ..attention import Attention

if TYPE_CHECKING:
    from ..configuration import ZooConfig
    from ..context import EarlierLayers


class EarlierLayersAttention(Attention):
    """Attention with layers that keep tensors in [`zoo.models.context.EarlierLayers`][] for later ones."""

    reads_earlier_layers = True

    def read(self, earlier: EarlierLayers | None, name: str, device: torch.device) -> tuple[Tensor, ...]:
        """Read a tensor of an earlier layer."""
        if earlier is None:
            raise InputError(
                f"layer {self.layer_idx} of attention={self.config.attention!r} was called by itself, but reads "
                f"{name}: call the stack that it belongs to"
            )
        return earlier.read(name, device)

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Require `share_layers=False`."""
        if config.share_layers:
            raise ConfigError(
                f"attention={config.attention!r} was given with share_layers=True, but its layers cannot be one: later "
                "ones read what an earlier one keeps"
            )
