"""Normalisations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .config import Config, NoPlainForm


class ZeroCenteredRMSNorm(nn.Module):
    """RMSNorm with weights stored as differences from one, so that weight decay pulls towards one (Gemma)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return (1 + self.weight) * x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps)


class DynamicTanh(nn.Module):
    """Dynamic tanh in place of a norm: weight * tanh(alpha * x) + bias (Zhu et al. 2025, equation 1)."""

    def __init__(self, width: int, alpha: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), alpha))
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.tanh(self.alpha * x) + self.bias


class UnitNorm(nn.Module):
    """Division by the length, without weights (Loshchilov et al. 2024, nGPT, section 2.2)."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=-1)


class Factors(nn.Module):
    """Learned factors, rescaled for a learning rate of their own (nGPT, section 2.5)."""

    def __init__(self, width: int, initial: float, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), scale))
        self.factor = initial / scale

    def forward(self) -> Tensor:
        return self.weight * self.factor


def build_norm(config: Config, width: int, eps: float) -> nn.Module:
    """The norm that the configuration names."""
    if config.norm == "layernorm":
        return nn.LayerNorm(width, eps=eps)
    if config.norm == "layernorm-no-affine":
        return nn.LayerNorm(width, eps=eps, elementwise_affine=False)
    if config.norm == "layernorm-no-bias":
        return nn.LayerNorm(width, eps=eps, bias=False)
    if config.norm == "rmsnorm":
        return nn.RMSNorm(width, eps=eps)
    if config.norm == "zero-centered-rmsnorm":
        return ZeroCenteredRMSNorm(width, eps)
    if config.norm == "dyt":
        return DynamicTanh(width, config.dyt_alpha)
    if config.norm == "unit":
        return UnitNorm()
    raise NoPlainForm("norm")
