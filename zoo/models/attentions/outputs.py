"""Attentions that change what heads give: by gates, or without the component along the token's own value."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.base.errors import ConfigError

from ..attention import Attention
from ..configuration import ZooConfig
from ..residual import SLOTS


class GatedAttention(Attention):
    """Attention with mixed values multiplied by elementwise sigmoid gates (Qiu et al. 2025, section 2.2, G1)."""

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        self.gate_proj = nn.Linear(config.hidden_size, self.o_proj.in_features, bias=config.attention_bias)

    def merge_heads(self, mixed: Tensor, hidden_states: Tensor, value: Tensor | None) -> Tensor:
        gate = torch.sigmoid(self.gate_proj(hidden_states))
        return super().merge_heads(mixed * gate.view_as(mixed), hidden_states, value)


class ExclusiveAttention(Attention):
    """Self-attention without its component along the token's own value, `y - (y·v) v / |v|^2` (Zhai 2026, section 3).

    Cross attention is the ordinary one, because it has no own value.
    """

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Refuse norms without an epsilon on every sublayer's output: the first token's is zero up to rounding."""
        after = "norm_branch" in SLOTS[config.norm_placement] or config.residual == "normalized"
        if config.norm == "unit" and after:
            raise ConfigError(
                f"attention={config.attention!r} was given with norm='unit', norm_placement={config.norm_placement!r} "
                f"and residual={config.residual!r}, but the first token gathers nothing, and a vector of zeros has no "
                "direction; give another norm, or norm_placement='pre' or 'post' with residual='plain'"
            )

    def merge_heads(self, mixed: Tensor, hidden_states: Tensor, value: Tensor | None) -> Tensor:
        if value is not None:
            own = F.normalize(value, dim=-1).repeat_interleave(self.num_key_value_groups, dim=1).transpose(1, 2)
            mixed = mixed - (mixed * own).sum(dim=-1, keepdim=True) * own
        return super().merge_heads(mixed, hidden_states, value)
