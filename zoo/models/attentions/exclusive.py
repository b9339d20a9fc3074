"""Exclusive self-attention: a token gathers from others only what its own value does not say."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ..attention import Attention
from ..parts import ATTENTIONS


@ATTENTIONS.register("exclusive")
class ExclusiveAttention(Attention):
    """Self-attention without its component along the token's own value, `y - (y·v) v / |v|^2` (Zhai 2026, section 3).

    Cross attention has no value of its own and is the usual one.
    """

    def merge_heads(self, mixed: Tensor, hidden_states: Tensor, value: Tensor | None) -> Tensor:
        """Take the component out and project the heads. Arguments as in the base class."""
        if value is not None:
            own = F.normalize(value, dim=-1).repeat_interleave(self.num_key_value_groups, dim=1).transpose(1, 2)
            mixed = mixed - (mixed * own).sum(dim=-1, keepdim=True) * own
        return super().merge_heads(mixed, hidden_states, value)
