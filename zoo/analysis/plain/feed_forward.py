"""Feed-forward networks and their activations."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config, NoPlainForm
from .norms import build_norm


def activate(x: Tensor, name: str) -> Tensor:
    """The activation of this name."""
    if name == "relu":
        return F.relu(x)
    if name == "gelu":
        return F.gelu(x)
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return F.gelu(x, approximate="tanh")
    if name == "silu":
        return F.silu(x)
    if name == "relu2":
        return F.relu(x).square()
    if name == "tanh":
        return F.tanh(x)
    raise NoPlainForm("hidden_act")


class FeedForward(nn.Module):
    """The position-wise network (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        if config.mlp_inner_norm:
            self.norm = build_norm(config, config.intermediate_size, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        x = activate(self.up_proj(x), self.config.hidden_act)
        if self.config.activation_dropout:
            x = F.dropout(x, self.config.activation_dropout, self.training)
        if self.config.mlp_inner_norm:
            # A norm on the inner width (Shleifer et al. 2021, NormFormer, section 2).
            x = self.norm(x)
        return self.down_proj(x)


class GatedFeedForward(nn.Module):
    """A network with a gate (Shazeer 2020, GLU Variants Improve Transformer, equation 6)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        if config.mlp_inner_norm:
            self.norm = build_norm(config, config.intermediate_size, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        x = activate(self.gate_proj(x), self.config.hidden_act) * self.up_proj(x)
        if self.config.activation_dropout:
            x = F.dropout(x, self.config.activation_dropout, self.training)
        if self.config.mlp_inner_norm:
            # A norm on the inner width (Shleifer et al. 2021, NormFormer, section 2).
            x = self.norm(x)
        return self.down_proj(x)


def build_feed_forward(config: Config) -> nn.Module:
    """The feed-forward network that the configuration names."""
    if config.feed_forward == "mlp":
        return FeedForward(config)
    if config.feed_forward == "gated":
        return GatedFeedForward(config)
    raise NoPlainForm("feed_forward")
