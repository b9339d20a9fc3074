"""Feed-forward networks and their activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config, NoPlainForm
from .norms import Factors, build_norm


def activate(x: Tensor, name: str) -> Tensor:
    """The activation of this name."""
    if name == "relu":
        return F.relu(x)
    if name in ("gelu", "gelu_python"):
        return F.gelu(x)
    if name in ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate"):
        return F.gelu(x, approximate="tanh")
    if name == "gelu_fast":
        return 0.5 * x * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x)))
    if name == "gelu_10":
        return F.gelu(x).clamp(-10, 10)
    if name == "quick_gelu":
        return x * torch.sigmoid(1.702 * x)
    if name in ("silu", "swish"):
        return F.silu(x)
    if name == "relu2":
        return F.relu(x).square()
    if name == "relu6":
        return F.relu6(x)
    if name == "leaky_relu":
        return F.leaky_relu(x)
    if name == "tanh":
        return F.tanh(x)
    if name == "sigmoid":
        return torch.sigmoid(x)
    if name == "mish":
        return F.mish(x)
    if name == "hardswish":
        return F.hardswish(x)
    if name == "linear":
        return x
    if name == "laplace":
        # A squaring function with finite slopes (Ma et al. 2022, Mega, equation 13).
        return 0.5 * (1 + torch.erf((x - 0.707107) / (0.282095 * 2**0.5)))
    if name == "sqrtsoftplus":
        return F.softplus(x).sqrt()
    raise NoPlainForm("hidden_act")


class XIELU(nn.Module):
    """An activation with learned slopes on both sides of zero (Huang and Schlag 2024, xIELU, section 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha_p = nn.Parameter(torch.tensor([0.8]).expm1().log())
        self.alpha_n = nn.Parameter(torch.tensor([0.8 - 0.5]).expm1().log())
        self.beta = nn.Parameter(torch.tensor(0.5), requires_grad=False)
        self.eps = nn.Parameter(torch.tensor(-1e-6), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        above = F.softplus(self.alpha_p) * x * x + self.beta * x
        slope = self.beta + F.softplus(self.alpha_n)
        return torch.where(x > 0, above, (torch.expm1(torch.min(x, self.eps)) - x) * slope + self.beta * x)


def learned_activation(name: str) -> nn.Module:
    """An activation with parameters."""
    if name == "prelu":
        return nn.PReLU()
    return XIELU()


def activated(x: Tensor, owner: Any, name: str) -> Tensor:
    """The activation of this name, with the owner's parameters if it has some."""
    if name in ("prelu", "xielu"):
        return owner.act_fn(x)
    return activate(x, name)


class FeedForward(nn.Module):
    """The position-wise network (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.config = config
        if config.feed_forward != "mlp":
            self.gate_proj = nn.Linear(config.hidden_size, width, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, width, bias=config.mlp_bias)
        self.down_proj = nn.Linear(width, config.hidden_size, bias=config.mlp_bias)
        if config.feed_forward == "normalized":
            self.gate_scales = Factors(width, 1.0, 1.0)
            self.up_scales = Factors(width, 1.0, 1.0)
        if config.hidden_act in ("prelu", "xielu"):
            self.act_fn = learned_activation(config.hidden_act)
        if config.mlp_inner_norm:
            self.norm = build_norm(config, width, config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        if self.config.feed_forward == "mlp":
            x = activated(self.up_proj(x), self, self.config.hidden_act)
        elif self.config.feed_forward == "normalized":
            # Gate and input have learned factors (nGPT, section 2.4).
            gate = self.gate_proj(x) * (self.gate_scales() * self.config.hidden_size**0.5)
            up = self.up_proj(x) * self.up_scales()
            x = activated(gate, self, self.config.hidden_act) * up
        else:
            # The network has a gate (Shazeer 2020, GLU Variants Improve Transformer, equation 6).
            x = activated(self.gate_proj(x), self, self.config.hidden_act) * self.up_proj(x)
        if self.config.activation_dropout:
            x = F.dropout(x, self.config.activation_dropout, self.training)
        if self.config.mlp_inner_norm:
            # A norm on the inner width (Shleifer et al. 2021, NormFormer, section 2).
            x = self.norm(x)
        return self.down_proj(x)


class Router(nn.Module):
    """Selects and weights the experts of each token."""

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
        # Experts are compared in float32 at least.
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if self.config.feed_forward == "moe-clamped":
            scores = scores + self.bias
        if self.config.balances_experts:
            self.scores = scores
        if self.config.feed_forward == "moe-sigmoid":
            # The balancing bias affects the selection, not the weights (DeepSeek-V3, section 2.1.2).
            weights = scores.sigmoid()
            affinities = weights + self.balance_bias
            if self.config.n_group != self.config.topk_group:
                # Select from the best groups only, ranked by the sum of their two best experts.
                groups = affinities.unflatten(-1, (self.config.n_group, -1))
                best = groups.topk(2, dim=-1).values.sum(dim=-1).topk(self.config.topk_group, dim=-1).indices
                ruled_out = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter(-1, best, False)
                affinities = groups.masked_fill(ruled_out[..., None], -torch.inf).flatten(-2)
            experts = affinities.topk(self.config.num_experts_per_tok, dim=-1).indices
            weights = weights.gather(-1, experts)
        else:
            # Top-k of the softmax (Jiang et al. 2024, Mixtral, section 2.1).
            weights, experts = scores.softmax(dim=-1).topk(self.config.num_experts_per_tok, dim=-1)
        if self.config.norm_topk_prob:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        if self.config.feed_forward == "moe-sigmoid":
            weights = weights * self.config.routed_scaling_factor
        return weights.to(x.dtype), experts


class BalancedRouter(Router):
    """A router with a bias that balances the use of experts."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Move and cast the weights, but not the bias to 16 bits, which would round its steps away."""
        bias = self.balance_bias.data
        super()._apply(fn, recurse)
        cast = self.balance_bias.data
        self.balance_bias.data = bias.to(cast.device, torch.promote_types(cast.dtype, torch.float32))
        return self


class Experts(nn.Module):
    """Gated feed-forward networks with stacked weights."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        count, width, inner = config.num_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(count, 2 * inner, width))
        self.down_proj = nn.Parameter(torch.empty(count, width, inner))
        if config.mlp_bias:
            self.gate_up_proj_bias = nn.Parameter(torch.zeros(count, 2 * inner))
            self.down_proj_bias = nn.Parameter(torch.zeros(count, width))
        if config.hidden_act in ("prelu", "xielu"):
            self.act_fn = learned_activation(config.hidden_act)
        if config.mlp_inner_norm:
            self.norm = build_norm(config, inner, config.layer_norm_eps)

    def forward(self, x: Tensor, expert: int) -> Tensor:
        """Apply one expert. *Shape:* (tokens, hidden_size), unchanged."""
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
            x = activated(gate, self, self.config.hidden_act) * up
        if self.config.activation_dropout:
            x = F.dropout(x, self.config.activation_dropout, self.training)
        if self.config.mlp_inner_norm:
            # A norm on the inner width (Shleifer et al. 2021, NormFormer, section 2).
            x = self.norm(x)
        x = x @ self.down_proj[expert].T
        return x + self.down_proj_bias[expert] if self.config.mlp_bias else x


def balance(model: nn.Module, attention_mask: Tensor | None, config: Config) -> Tensor:
    """The load-balancing loss of all routers (Fedus et al. 2021, Switch Transformers, equations 4 to 6)."""
    scores = torch.stack([module.scores for module in model.modules() if isinstance(module, Router)])
    probabilities = scores.softmax(dim=-1)
    chosen = torch.zeros_like(scores).scatter(-1, probabilities.topk(config.num_experts_per_tok, dim=-1).indices, 1.0)
    real = torch.ones_like(scores[..., 0])
    if attention_mask is not None:
        real = attention_mask.reshape(-1, scores.shape[1]).to(real).expand_as(real)
    weights = (real / real.sum())[..., None]
    return config.num_experts * ((chosen * weights).sum(dim=(0, 1)) * (probabilities * weights).sum(dim=(0, 1))).sum()


class MixtureOfExperts(nn.Module):
    """Each token runs through a few of many feed-forward networks (Shazeer et al. 2017, section 2)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        if config.feed_forward == "moe-sigmoid":
            self.router: nn.Module = BalancedRouter(config)
        else:
            self.router = Router(config)
        self.experts = Experts(config)
        if config.feed_forward == "moe-sigmoid" and config.n_shared_experts:
            self.shared_experts = FeedForward(config, config.moe_intermediate_size * config.n_shared_experts)
        if config.feed_forward == "moe-shared":
            self.shared_expert = FeedForward(config, config.shared_expert_intermediate_size)
            self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the experts of each token. *Shape:* (batch, length, hidden_size), unchanged."""
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens)
        mixed = torch.zeros_like(tokens)
        for expert in range(self.config.num_experts):
            rows, places = torch.where(chosen == expert)
            mixed = mixed.index_add(0, rows, self.experts(tokens[rows], expert) * weights[rows, places, None])
        mixed = mixed.view_as(x)
        if self.config.feed_forward == "moe-sigmoid" and self.config.n_shared_experts:
            # Shared experts, applied to all tokens.
            mixed = mixed + self.shared_experts(x)
        if self.config.feed_forward == "moe-shared":
            # A gated shared expert, applied to all tokens (Qwen team 2024, Qwen1.5-MoE).
            mixed = mixed + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return mixed


def build_feed_forward(config: Config, layer_idx: int) -> nn.Module:
    """The feed-forward network that the configuration names."""
    if config.feed_forward in ("mlp", "gated", "normalized"):
        return FeedForward(config, config.intermediate_size)
    if config.feed_forward in ("moe", "moe-sigmoid", "moe-shared", "moe-clamped"):
        dense = config.first_k_dense_replace and layer_idx < config.first_k_dense_replace
        return FeedForward(config, config.intermediate_size) if dense else MixtureOfExperts(config)
    raise NoPlainForm("feed_forward")
