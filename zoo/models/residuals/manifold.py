"""Manifold-constrained hyper-connections: streams are mixed by doubly stochastic matrices."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.models.configuration import ZooConfig
from zoo.models.parts import option
from zoo.models.precision import at_least_float32, in_own_precision
from zoo.models.residual import Residual, Stream
from zoo.models.validation import require_at_least
from zoo.models.widths import matrix_std

from .hyper_connections import HyperConnections, Weights
from .streams import SeveralStreams


class OfAllStreams(nn.Module):
    """Numbers of all streams of a token together, by kind in `sizes`: `scale * (weight @ rms_norm(streams)) + base`."""

    parameter_roles: ClassVar[dict[str, str]] = {"base": "bias", "scale": "scalar"}

    def __init__(self, config: ZooConfig, *sizes: int) -> None:
        super().__init__()
        num_streams = option(config, ManifoldHyperConnections, "num_streams")
        self.sizes = sizes
        self.eps = config.layer_norm_eps
        self.hyper_eps: float = option(config, ManifoldHyperConnections, "hyper_eps")
        self.std = matrix_std(config)
        self.weight = nn.Parameter(torch.empty(sum(sizes), num_streams * config.hidden_size))
        self.base = nn.Parameter(torch.empty(sum(sizes)))
        self.scale = nn.Parameter(torch.empty(len(sizes)))

    def init_weights(self) -> None:
        """Begin near weights that are the same for every token."""
        init.normal_(self.weight, mean=0.0, std=self.std)
        init.zeros_(self.base)
        init.ones_(self.scale)

    def numbers(self, streams: Tensor) -> tuple[Tensor, ...]:
        """Weights of every size, (batch_size, seq_len, size), in float32 at least."""
        precise = streams.flatten(-2).to(at_least_float32(streams.dtype))
        normed = F.rms_norm(precise, precise.shape[-1:], eps=self.eps)
        found = F.linear(normed, self.weight.to(precise.dtype)).split(self.sizes, dim=-1)
        bases = self.base.to(precise.dtype).split(self.sizes)
        return tuple(
            scale * one + base for scale, one, base in zip(self.scale.to(precise.dtype), found, bases, strict=True)
        )


class ManifoldWeights(OfAllStreams):
    """Weights of a connection, the mixing ones doubly stochastic (Xie et al. 2025, section 4)."""

    def __init__(self, config: ZooConfig) -> None:
        self.num_streams: int = option(config, ManifoldHyperConnections, "num_streams")
        super().__init__(config, self.num_streams, self.num_streams, self.num_streams**2)
        self.drawn_as = ("hyper-connection", f"mixes {self.num_streams} streams by a doubly stochastic matrix")
        self.iterations: int = option(config, ManifoldHyperConnections, "sinkhorn_iterations")

    def forward(self, streams: Tensor) -> Weights:
        """Weights of every token, of streams, (batch_size, seq_len, num_streams, hidden_size)."""
        read, write, mix = self.numbers(streams)
        mix = mix.unflatten(-1, (self.num_streams, self.num_streams)).softmax(dim=-1) + self.hyper_eps
        mix = mix / (mix.sum(dim=-2, keepdim=True) + self.hyper_eps)
        for _ in range(self.iterations - 1):
            mix = mix / (mix.sum(dim=-1, keepdim=True) + self.hyper_eps)
            mix = mix / (mix.sum(dim=-2, keepdim=True) + self.hyper_eps)
        return read.sigmoid() + self.hyper_eps, 2 * write.sigmoid(), mix


class WeightedStreams(SeveralStreams):
    """Copies of the embedded tokens at the start, and at the end a sum with weights that depend on the token."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(option(config, ManifoldHyperConnections, "num_streams"))
        self.drawn_as = ("weighted sum of streams", f"{self.num_streams} copies of the embeddings at the start")
        self.weights = ReadingWeights(config)

    def forward(self, streams: Tensor) -> Tensor:
        with in_own_precision(streams.device):
            read = self.weights(streams)
            return (read.unsqueeze(-2) @ streams.to(read.dtype)).squeeze(-2).to(streams.dtype)


class ReadingWeights(OfAllStreams):
    """Weights by which the stack's end reads the streams."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config, option(config, ManifoldHyperConnections, "num_streams"))

    def forward(self, streams: Tensor) -> Tensor:
        """Weights, (batch_size, seq_len, num_streams), of the streams of every token."""
        (read,) = self.numbers(streams)
        return read.sigmoid() + self.hyper_eps


class ManifoldHyperConnections(HyperConnections):
    """Hyper-connections with doubly stochastic mixing, which preserves the mean of the streams.

    Manifold-constrained hyper-connections (Xie et al. 2025, "mHC", section 4), as DeepSeek-V4 has them.

    Args:
        weights: Computes how streams are read, written and mixed.
        norm_streams: Norm before that; an identity here, as all streams of a token are normalised together.
        slots: As in the base class.
    """

    options: ClassVar[dict[str, Any]] = {"num_streams": 4, "sinkhorn_iterations": 20, "hyper_eps": 1e-6}

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        super().check_options(config)
        require_at_least(1, sinkhorn_iterations=option(config, cls, "sinkhorn_iterations"))
        require_at_least(0, hyper_eps=option(config, cls, "hyper_eps"))

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        return cls(ManifoldWeights(config), **slots)

    @classmethod
    def build_stream(cls, config: ZooConfig) -> Stream:
        """Build what copies the embeddings and sums up the streams by learned weights."""
        return WeightedStreams(config)
