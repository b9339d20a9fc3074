"""Normalisations. Their places around a sublayer are defined in [`zoo.models.residual`][]."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.fast.modules import QuickLayerNorm

from .configuration import ZooConfig
from .parts import NORMS
from .precision import at_least_float32


class LayerNorm(QuickLayerNorm):
    """Layer normalisation (Ba et al. 2016).

    Args:
        width: Size of the last dimension, which is normalised.
    """

    def __init__(self, width: int, config: ZooConfig) -> None:
        super().__init__(width, eps=config.layer_norm_eps)


class BiaslessLayerNorm(QuickLayerNorm):
    """Layer normalisation that learns a factor for every channel and no bias (ModernBERT, Cohere, MPT)."""

    def __init__(self, width: int, config: ZooConfig) -> None:
        super().__init__(width, eps=config.layer_norm_eps, bias=False)
        self.drawn_as = ("LayerNorm", "no bias")


class AffinelessLayerNorm(QuickLayerNorm):
    """Layer normalisation that learns nothing (LTG-BERT, GPT-BERT, OLMo)."""

    def __init__(self, width: int, config: ZooConfig) -> None:
        super().__init__(width, eps=config.layer_norm_eps, elementwise_affine=False)
        self.drawn_as = ("LayerNorm", "no weights")


class RMSNorm(nn.Module):
    """Root-mean-square normalisation (Zhang and Sennrich 2019): without subtraction of the mean and without a bias.

    The statistics are computed in float32 at least, as every checkpoint in use was trained.

    Args:
        width: Size of the last dimension, which is normalised.
    """

    def __init__(self, width: int, config: ZooConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = config.layer_norm_eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Normalise the last dimension. *Shape:* (..., width), unchanged."""
        precise = hidden_states.to(at_least_float32(hidden_states.dtype))
        normalised = F.rms_norm(precise, self.weight.shape, eps=self.eps)
        return self.weight * normalised.to(hidden_states.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}"


class ZeroCenteredNorm(RMSNorm):
    """Root-mean-square normalisation with weights learned as differences from one (Gemma; Qwen3-Next).

    Weight decay draws the factors towards one instead of zero, and 16-bit floats are finest where they are. The name
    does not end in RMSNorm: in the place of such, serving engines put a norm of their own, of weights as they are.
    """

    drawn_as = ("RMSNorm", "factors are 1 + weights")

    def init_weights(self) -> None:
        init.zeros_(self.weight)

    def forward(self, hidden_states: Tensor) -> Tensor:
        precise = hidden_states.to(at_least_float32(hidden_states.dtype))
        factors = 1.0 + self.weight.to(precise.dtype)
        return F.rms_norm(precise, self.weight.shape, factors, self.eps).to(hidden_states.dtype)


class DynamicTanh(nn.Module):
    """Dynamic tanh in the place of a norm: `weight * tanh(alpha * x) + bias` (Zhu et al. 2025).

    Args:
        width: Size of the last dimension.
        config: Supplies `dyt_alpha`, the initial alpha.
    """

    def __init__(self, width: int, config: ZooConfig) -> None:
        super().__init__()
        self.initial_alpha = config.dyt_alpha
        self.alpha = nn.Parameter(torch.empty(1))
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))

    def init_weights(self) -> None:
        """Set the squashing to its initial strength and the affine map to the identity."""
        init.constant_(self.alpha, self.initial_alpha)
        init.ones_(self.weight)
        init.zeros_(self.bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Squash every element. *Shape:* (..., width), unchanged."""
        return self.weight * torch.tanh(self.alpha * hidden_states) + self.bias


def build_norm(config: ZooConfig, width: int | None = None) -> nn.Module:
    return NORMS.get(config.norm)(width or config.hidden_size, config)
