"""Feed-forward networks and their activations."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config, NoPlainForm
from .norms import Factors, build_norm


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

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.config = config
        self.up_proj = nn.Linear(config.hidden_size, width, bias=config.mlp_bias)
        self.down_proj = nn.Linear(width, config.hidden_size, bias=config.mlp_bias)
        if config.mlp_inner_norm:
            self.norm = build_norm(config, width, config.layer_norm_eps)

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

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.config = config
        self.gate_proj = nn.Linear(config.hidden_size, width, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, width, bias=config.mlp_bias)
        self.down_proj = nn.Linear(width, config.hidden_size, bias=config.mlp_bias)
        if config.feed_forward == "normalized":
            self.gate_scales = Factors(width, 1.0, 1.0)
            self.up_scales = Factors(width, 1.0, 1.0)
        if config.mlp_inner_norm:
            self.norm = build_norm(config, width, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        if self.config.feed_forward == "normalized":
            # Both have learned factors (nGPT, section 2.4).
            gate = self.gate_proj(x) * (self.gate_scales() * self.config.hidden_size**0.5)
            x = activate(gate, self.config.hidden_act) * (self.up_proj(x) * self.up_scales())
        else:
            x = activate(self.gate_proj(x), self.config.hidden_act) * self.up_proj(x)
        if self.config.activation_dropout:
            x = F.dropout(x, self.config.activation_dropout, self.training)
        if self.config.mlp_inner_norm:
            # A norm on the inner width (Shleifer et al. 2021, NormFormer, section 2).
            x = self.norm(x)
        return self.down_proj(x)


class Router(nn.Module):
    """Chooses experts for each token, and weighs them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        if config.feed_forward == "moe-sigmoid":
            self.balance_bias = nn.Parameter(torch.zeros(config.num_experts), requires_grad=False)
        if config.feed_forward == "moe-clamped":
            self.bias = nn.Parameter(torch.zeros(config.num_experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and indices of experts. *Shape:* (tokens, hidden_size) -> twice (tokens, num_experts_per_tok)."""
        scores = F.linear(x, self.weight)
        if self.config.feed_forward == "moe-clamped":
            scores = scores + self.bias
        if self.config.feed_forward == "moe-sigmoid":
            # The bias balances how often experts are chosen, and is in no weight (DeepSeek-V3, section 2.1.2).
            weights = scores.sigmoid()
            experts = (weights + self.balance_bias).topk(self.config.num_experts_per_tok, dim=-1).indices
            weights = weights.gather(-1, experts)
        else:
            # Those of the highest probabilities (Jiang et al. 2024, Mixtral, section 2.1).
            weights, experts = scores.softmax(dim=-1).topk(self.config.num_experts_per_tok, dim=-1)
        if self.config.norm_topk_prob:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        if self.config.feed_forward == "moe-sigmoid":
            weights = weights * self.config.routed_scaling_factor
        return weights, experts


class Experts(nn.Module):
    """Gated feed-forward networks, their weights stacked."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        count, width, inner = config.num_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(count, 2 * inner, width))
        self.down_proj = nn.Parameter(torch.empty(count, width, inner))
        if config.mlp_bias:
            self.gate_up_proj_bias = nn.Parameter(torch.zeros(count, 2 * inner))
            self.down_proj_bias = nn.Parameter(torch.zeros(count, width))

    def forward(self, x: Tensor, expert: int) -> Tensor:
        """Transform tokens by one expert. *Shape:* (tokens, hidden_size), unchanged."""
        x = x @ self.gate_up_proj[expert].T
        if self.config.mlp_bias:
            x = x + self.gate_up_proj_bias[expert]
        gate, up = x.chunk(2, dim=-1)
        if self.config.feed_forward == "moe-clamped":
            # Gate and input are bounded (OpenAI 2025, gpt-oss, section 2.1).
            gate = gate.clamp(max=self.config.swiglu_limit)
            up = up.clamp(-self.config.swiglu_limit, self.config.swiglu_limit)
            x = gate * torch.sigmoid(self.config.swiglu_alpha * gate) * (up + 1)
        else:
            x = activate(gate, self.config.hidden_act) * up
        if self.config.activation_dropout:
            x = F.dropout(x, self.config.activation_dropout, self.training)
        x = x @ self.down_proj[expert].T
        return x + self.down_proj_bias[expert] if self.config.mlp_bias else x


class MixtureOfExperts(nn.Module):
    """Feed-forward networks, a few of them for each token (Shazeer et al. 2017, section 2)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.router = Router(config)
        self.experts = Experts(config)
        if config.feed_forward == "moe-sigmoid" and config.n_shared_experts:
            self.shared_experts = GatedFeedForward(config, config.moe_intermediate_size * config.n_shared_experts)
        if config.feed_forward == "moe-shared":
            self.shared_expert = GatedFeedForward(config, config.shared_expert_intermediate_size)
            self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token by its experts. *Shape:* (batch, length, hidden_size), unchanged."""
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens)
        mixed = torch.zeros_like(tokens)
        for expert in range(self.config.num_experts):
            rows, places = torch.where(chosen == expert)
            mixed = mixed.index_add(0, rows, self.experts(tokens[rows], expert) * weights[rows, places, None])
        mixed = mixed.view_as(x)
        if self.config.feed_forward == "moe-sigmoid" and self.config.n_shared_experts:
            # One more expert, for all tokens.
            mixed = mixed + self.shared_experts(x)
        if self.config.feed_forward == "moe-shared":
            # One more expert for all tokens, through a gate (Qwen team 2024, Qwen1.5-MoE).
            mixed = mixed + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return mixed


def build_feed_forward(config: Config, layer_idx: int) -> nn.Module:
    """The feed-forward network that the configuration names."""
    if config.feed_forward == "mlp":
        return FeedForward(config, config.intermediate_size)
    if config.feed_forward in ("gated", "normalized"):
        return GatedFeedForward(config, config.intermediate_size)
    if config.feed_forward not in ("moe", "moe-sigmoid", "moe-shared", "moe-clamped"):
        raise NoPlainForm("feed_forward")
    if config.first_k_dense_replace == 0:
        return MixtureOfExperts(config)
    return (
        GatedFeedForward(config, config.intermediate_size)
        if layer_idx < config.first_k_dense_replace
        else MixtureOfExperts(config)
    )
