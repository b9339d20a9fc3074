"""Gated attention: every head's output is multiplied by a gate computed from the query's token."""

from typing import Any

import torch
from torch import Tensor, nn

from ..attention import Attention
from ..configuration import ZooConfig


class GatedAttention(Attention):
    """Attention with mixed values multiplied by elementwise sigmoid gates (Qiu et al. 2025, section 2.2, G1)."""

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        self.gate_proj = nn.Linear(config.hidden_size, self.o_proj.in_features, bias=config.attention_bias)

    def merge_heads(self, mixed: Tensor, hidden_states: Tensor, value: Tensor | None) -> Tensor:
        """Gate the heads and project them."""
        gate = torch.sigmoid(self.gate_proj(hidden_states))
        return super().merge_heads(mixed * gate.view_as(mixed), hidden_states, value)
