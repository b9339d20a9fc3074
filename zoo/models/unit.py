"""Vectors of length one: the norm, the weights and the scales of the normalised Transformer.

Loshchilov et al. 2024, "nGPT: Normalized Transformer with Representation Learning on the Hypersphere".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from .attention import Attention, Mixed
from .choices import AttentionScale
from .configuration import ZooConfig
from .embedding import TokenEmbedding
from .layers import GatedFeedForward
from .norms import build_norm
from .precision import at_least_float32
from .residual import Residual


def unit(vectors: Tensor, dim: int = -1) -> Tensor:
    """Divide vectors by their lengths, in float32 at least. *Shape:* any, unchanged."""
    return F.normalize(vectors.to(at_least_float32(vectors.dtype)), dim=dim).to(vectors.dtype)


class UnitNorm(nn.Module):
    """Division by the length, `x / |x|`, without weights (nGPT, section 2.2).

    Args:
        width: Size of the last dimension, which is normalised.
    """

    drawn_as = ("unit norm", "x / |x|")

    def __init__(self, width: int, config: ZooConfig) -> None:
        super().__init__()

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Normalise the last dimension. *Shape:* (..., width), unchanged."""
        return unit(hidden_states)


class UnitWeights(nn.Module):
    """A module with matrices of vectors of length one (nGPT, section 2.6), kept so by [`normalize_weights`][]."""

    # Paths of matrices, and the dimension along which vectors lie: -1 for one an output, 0 for one an input
    unit_weights: ClassVar[dict[str, int]]

    def init_weights(self) -> None:
        """Divide the vectors of a new model by their lengths."""
        for name, dim in self.unit_weights.items():
            weight = self.get_parameter(name)
            init.copy_(weight, unit(weight, dim))


def normalize_weights(model: nn.Module) -> None:
    """Divide the weight vectors of a normalised Transformer by their lengths, after an update of the weights.

    `zoo train` does it, and `zoo.training.AfterSteps` in transformers' trainer; a training loop of your own calls
    it after `optimizer.step()`. Other models stay as they are.
    """
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, UnitWeights):
                for name, dim in module.unit_weights.items():
                    weight = module.get_parameter(name)
                    weight.copy_(unit(weight, dim))


class RescaledWeights(nn.Module):
    """Learned factors `weight * initial / scale`, so that their learning rate is their own (nGPT, section 2.5)."""

    def __init__(self, width: int, initial: float, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.factor = initial / scale
        self.drawn_as = ("learned factors", f"one a channel, initially {initial:g}")
        self.weight = nn.Parameter(torch.empty(width))

    def init_weights(self) -> None:
        init.constant_(self.weight, self.scale)

    def forward(self) -> Tensor:
        """Give the factors. *Shape:* (width,)."""
        return self.weight * self.factor

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, initial={self.scale * self.factor:.4g}"


class UnitEmbedding(UnitWeights, TokenEmbedding):
    """Token vectors of length one (nGPT, section 2.1)."""

    unit_weights: ClassVar[dict[str, int]] = {"weight": -1}

    def normalize_from(self, row: int) -> None:
        with torch.no_grad():
            self.weight[row:] = unit(self.weight[row:])


class UnitHead(UnitWeights, nn.Linear):
    """The output projection: cosines of hidden states and token vectors, times a learned factor a token (nGPT, 2.1)."""

    unit_weights: ClassVar[dict[str, int]] = {"weight": -1}

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__(in_features, out_features, bias)
        self.base = in_features**-0.5
        self.scales = nn.Parameter(torch.empty(out_features))

    def init_weights(self) -> None:
        super().init_weights()
        init.constant_(self.scales, self.base)

    def forward(self, input: Tensor) -> Tensor:
        """Score every token id. *Shape:* (..., hidden_size) to (..., vocab_size)."""
        return super().forward(input) * (self.scales / self.base)

    def resized(self, like: nn.Linear) -> UnitHead:
        """The head for other tokens, with vectors like those of a layer; factors of common tokens stay."""
        head = UnitHead(like.in_features, like.out_features, like.bias is not None).to(self.weight)
        kept = min(self.out_features, head.out_features)
        with torch.no_grad():
            head.scales.fill_(head.base)[:kept] = self.scales[:kept]
            like.weight[kept:] = unit(like.weight[kept:])
        head.weight, head.bias = like.weight, like.bias
        return head


class NormalizedAttention(UnitWeights, Attention):
    """Attention with weight vectors of length one (Loshchilov et al. 2024, nGPT, section 2.3.2, equations 13 to 16).

    Queries and keys are normalized if `norm="unit"` and `qk_norm="head"`, and then have one learned factor per channel,
    the same for both; scores are multiplied by sqrt(head_dim), unless `attention_scale` is set.
    """

    keeps_distances = False  # a rotation's two channels have a factor each, after it

    unit_weights: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("q_proj.weight", "k_proj.weight", "v_proj.weight"), -1),
        "o_proj.weight": 0,
    }

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        if config.attention_scale == AttentionScale.HEAD_DIM:
            self.scaling = self.head_dim**0.5

    def build_projections(self, config: ZooConfig) -> None:
        super().build_projections(config)
        self.qk_scales = RescaledWeights(self.q_proj.out_features, 1.0, config.hidden_size**-0.5)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        # Both have the factors, after the rotation. Queries have them twice here: that gives the same scores, also with
        # grouped queries, and keys are cached without them.
        factors = self.qk_scales().square().to(query.dtype).view(query.shape[1], 1, -1)
        return super().attend(query * factors, key, value, attention_mask, **kwargs)


class NormalizedFeedForward(UnitWeights, GatedFeedForward):
    """A gated network with weight vectors of length one (Loshchilov et al. 2024, nGPT, section 2.4).

    Both inner vectors have one learned factor per channel, and the input of the gate is multiplied by
    sqrt(hidden_size).
    """

    unit_weights: ClassVar[dict[str, int]] = {"gate_proj.weight": -1, "up_proj.weight": -1, "down_proj.weight": 0}

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.gate_scales = RescaledWeights(config.intermediate_size, 1.0, 1.0)
        self.up_scales = RescaledWeights(config.intermediate_size, 1.0, 1.0)
        self.gate_factor = config.hidden_size**0.5

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = super().project(hidden_states)
        return gate * (self.gate_scales() * self.gate_factor), up * self.up_scales()


RATE = 0.05  # The step of a new model


class NormalizedResidual(Residual):
    """`norm(x + |alpha| * (norm(sublayer(x)) - x))` (Loshchilov et al. 2024, nGPT, section 2.2, equations 10 and 11).

    The norms are those of `norm`: with "unit", the stream moves on the hypersphere. Other norm slots are filled by
    `norm_placement`.

    Args:
        rates: The learned steps, "eigen learning rates", one a channel.
        slots: As in the base class.
    """

    def __init__(self, rates: RescaledWeights, **slots: nn.Module) -> None:
        super().__init__(**slots)
        self.rates = rates

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        norms = {slot: slots.get(slot) or build_norm(config) for slot in ("norm_branch", "norm_out")}
        return cls(RescaledWeights(config.hidden_size, RATE, config.hidden_size**-0.5), **{**slots, **norms})

    def forward(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        branch = self.branch(hidden_states, sublayer, *args, **kwargs)
        skip = self.skip(hidden_states)
        return self.norm_out(skip + self.added(skip, branch))

    def added(self, skip: Tensor, branch: Tensor) -> Tensor:
        return self.rates().abs() * (branch - skip)
