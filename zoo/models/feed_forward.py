"""Feed-forward sublayers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from zoo.fast.dropout import Dropout
from zoo.fast.identity import Identity

from .norms import build_norm
from .parts import ACTIVATIONS, FEED_FORWARDS

if TYPE_CHECKING:
    from .configuration import ZooConfig


class FeedForward(nn.Module):
    """`down_proj(act(up_proj(x)))`, the position-wise network (Vaswani et al. 2017, section 3.3).

    Args:
        config: Supplies `hidden_size`, `intermediate_size`, `hidden_act`, `mlp_bias`, `activation_dropout` and
            `mlp_inner_norm`.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        self.act_fn = build_activation(config.hidden_act)
        self.dropout = Dropout(config.activation_dropout)
        self.norm = build_norm(config, config.intermediate_size) if config.mlp_inner_norm else Identity()

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Transform every position by itself. *Shape:* (batch_size, seq_len, hidden_size), unchanged."""
        inner = self.act_fn(self.up_proj(hidden_states))
        return self.down_proj(self.norm(self.dropout(inner)))


class GatedFeedForward(FeedForward):
    """`down_proj(act(gate_proj(x)) * up_proj(x))` (Shazeer 2020, "GLU Variants Improve Transformer").

    With `hidden_act` silu this is SwiGLU, with gelu GeGLU, with relu ReGLU.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Transform every position by itself. *Shape:* (batch_size, seq_len, hidden_size), unchanged."""
        gate, up = self.project(hidden_states)
        return self.down_proj(self.norm(self.dropout(self.act_fn(gate) * up)))

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the activated gate and its input.

        Args:
            hidden_states: *Shape:* (batch_size, seq_len, hidden_size)

        Returns:
            Both. *Shape:* (batch_size, seq_len, intermediate_size)
        """
        return self.gate_proj(hidden_states), self.up_proj(hidden_states)


def build_activation(name: str) -> nn.Module:
    """Build an activation by its name in [`ACTIVATIONS`][zoo.models.parts.ACTIVATIONS]."""
    return ACTIVATIONS.get(name)()


def build_feed_forward(config: ZooConfig, layer_idx: int | None = None) -> nn.Module:
    """Build the feed-forward sublayer that the configuration names."""
    part: Any = FEED_FORWARDS.get(config.feed_forward)
    same_in_all = layer_idx is None or not hasattr(part, "build")
    sublayer: nn.Module = part(config) if same_in_all else part.build(config, layer_idx)
    return sublayer
