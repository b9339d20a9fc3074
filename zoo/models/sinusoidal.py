"""Fixed position embeddings: sines and cosines."""

from __future__ import annotations

import torch
from torch import Tensor

from .configuration import ZooConfig
from .embedding import Position


class SinusoidalPosition(Position):
    """Fixed sines and cosines in alternating columns (Vaswani et al. 2017, section 3.5).

    The table is computed in float32 from the positions asked for, so the length has no limit.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.width = config.hidden_size
        self.theta = config.sinusoidal_theta

    def phases(self, position_ids: Tensor) -> Tensor:
        """Angles of every position: *Shape:* (batch_size or 1, seq_len, ceil(hidden_size / 2))."""
        # Computed in float32 and not kept: a buffer would lose its precision when the model is cast to bfloat16.
        exponents = torch.arange(0, self.width, 2, dtype=torch.float32, device=position_ids.device) / self.width
        return position_ids[..., None].float() / self.theta**exponents

    def table(self, position_ids: Tensor) -> Tensor:
        """Rows of the table: *Shape:* (batch_size or 1, seq_len, hidden_size)."""
        phases = self.phases(position_ids)
        return torch.stack([phases.sin(), phases.cos()], dim=-1).flatten(-2)[..., : self.width]

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        return inputs_embeds + self.table(position_ids).to(inputs_embeds.dtype)


class SinusoidalHalvesPosition(SinusoidalPosition):
    """The same sines and cosines, all sines first and all cosines after them (tensor2tensor, Marian)."""

    def table(self, position_ids: Tensor) -> Tensor:
        """Rows of the table: *Shape:* (batch_size or 1, seq_len, hidden_size)."""
        phases = self.phases(position_ids)
        return torch.cat([phases.sin(), phases.cos()], dim=-1)[..., : self.width]
