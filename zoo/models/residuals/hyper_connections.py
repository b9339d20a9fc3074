"""Hyper-connections: several residual streams that learned weights read, mix and write.

Manifold-constrained ones mix them by doubly stochastic matrices.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.fast.modules import Identity
from zoo.models.choices import NormPlacement
from zoo.models.configuration import ZooConfig
from zoo.models.norms import build_norm
from zoo.models.parts import RESIDUALS, option
from zoo.models.precision import at_least_float32, in_own_precision
from zoo.models.residual import Residual, Stream
from zoo.models.widths import matrix_std

Weights = tuple[Tensor, Tensor, Tensor]
"""How streams are read, *Shape:* (..., num_streams); written, the same; and mixed, (..., num_streams, num_streams)."""

INITIAL_SCALE = 0.01  # Initial factor of the part of the weights that depends on the token (section 3.2)


class SeveralStreams(Stream):
    """Copies of the embedded tokens at the start, their sum at the end (Zhu et al. 2024, section 2.1)."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.num_streams: int = option(config, RESIDUALS.get(config.residual), "num_streams")
        self.drawn_as = ("sum of streams", f"{self.num_streams} copies of the embeddings at the start")

    def open(self, hidden_states: Tensor) -> Tensor:
        """Copy. *Shape:* (batch_size, seq_len, hidden_size) to (batch_size, seq_len, num_streams, hidden_size)."""
        return hidden_states.unsqueeze(-2).repeat_interleave(self.num_streams, dim=-2)

    def forward(self, streams: Tensor) -> Tensor:
        """Sum up. *Shape:* (batch_size, seq_len, num_streams, hidden_size) to (batch_size, seq_len, hidden_size)."""
        return streams.sum(dim=-2)

    def extra_repr(self) -> str:
        return str(self.num_streams)


class ConnectionWeights(nn.Module):
    """Weights of a connection, in part computed of the token (section 2.2); a new one reads `stream`."""

    parameter_roles: ClassVar[dict[str, str]] = dict.fromkeys(("read", "write", "mix", "scale"), "scalar")

    def __init__(self, config: ZooConfig, stream: int) -> None:
        super().__init__()
        self.num_streams = option(config, HyperConnections, "num_streams")
        self.stream = stream
        self.drawn_as = ("hyper-connection", f"reads, mixes and writes {self.num_streams} streams by learned weights")
        self.read = nn.Parameter(torch.empty(self.num_streams))
        self.write = nn.Parameter(torch.empty(self.num_streams))
        self.mix = nn.Parameter(torch.empty(self.num_streams, self.num_streams))
        self.weight = nn.Parameter(torch.empty(2 + self.num_streams, config.hidden_size))
        self.scale = nn.Parameter(torch.empty(2))

    def init_weights(self) -> None:
        """Begin as a plain residual connection of one stream (equation 14)."""
        identity = torch.eye(self.num_streams)
        init.copy_(self.read, identity[self.stream])
        init.ones_(self.write)
        init.copy_(self.mix, identity)
        init.zeros_(self.weight)
        init.constant_(self.scale, INITIAL_SCALE)

    def forward(self, normed: Tensor) -> Weights:
        """Weights of every token (equations 10 to 13); streams are (batch_size, seq_len, num_streams, hidden_size)."""
        dtype = at_least_float32(normed.dtype)
        dynamic = torch.tanh(normed.to(dtype) @ self.weight.T.to(dtype))
        read, write, mix = dynamic.split((1, 1, self.num_streams), dim=-1)
        in_scale, out_scale = self.scale.to(dtype)
        return (
            in_scale * read.squeeze(-1) + self.read,
            out_scale * write.squeeze(-1) + self.write,
            in_scale * mix + self.mix,
        )


class HyperConnections(Residual):
    """Several streams: a sublayer reads a weighted sum of them, and writes a share to each.

    The streams are mixed besides: dynamic hyper-connections (Zhu et al. 2024, "Hyper-Connections", section 2).

    Args:
        weights: Computes how streams are read, written and mixed.
        norm_streams: Norm before that.
        slots: As in the base class; norms and scales on the skip connection and after the sum act on every stream.
    """

    options: ClassVar[dict[str, Any]] = {"num_streams": 4}
    least: ClassVar[dict[str, int]] = {"num_streams": 1}
    stream_class = SeveralStreams

    def __init__(self, weights: nn.Module, norm_streams: nn.Module | None = None, **slots: nn.Module) -> None:
        super().__init__(**slots)
        self.norm_streams = norm_streams or Identity()
        self.weights = weights

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        connection = 2 * layer_idx + (not opens_layer)
        weights = ConnectionWeights(config, connection % option(config, cls, "num_streams"))
        return cls(weights, build_norm(config), **slots)

    def forward(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        dtype = hidden_states.dtype
        with in_own_precision(hidden_states.device):
            read, write, mix = self.weights(self.norm_streams(hidden_states))
            streams = hidden_states.to(read.dtype)
            read_out = (read.unsqueeze(-2) @ streams).squeeze(-2)
            mixed = mix.transpose(-1, -2) @ self.skip(streams)
        branch = self.branch(read_out.to(dtype), sublayer, *args, **kwargs)
        return self.norm_out((mixed + write.unsqueeze(-1) * branch.unsqueeze(-2)).to(dtype))


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

    def forward(self, streams: Tensor) -> tuple[Tensor, ...]:
        """Numbers of every size, (batch_size, seq_len, size), of (batch_size, seq_len, num_streams, hidden_size)."""
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
        read, write, mix = super().forward(streams)
        mix = mix.unflatten(-1, (self.num_streams, self.num_streams)).softmax(dim=-1) + self.hyper_eps
        mix = mix / (mix.sum(dim=-2, keepdim=True) + self.hyper_eps)
        for _ in range(self.iterations - 1):
            mix = mix / (mix.sum(dim=-1, keepdim=True) + self.hyper_eps)
            mix = mix / (mix.sum(dim=-2, keepdim=True) + self.hyper_eps)
        return read.sigmoid() + self.hyper_eps, 2 * write.sigmoid(), mix


class WeightedStreams(SeveralStreams):
    """Copies of the embedded tokens at the start, and at the end a sum with weights that depend on the token."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.drawn_as = ("weighted sum of streams", f"{self.num_streams} copies of the embeddings at the start")
        self.weights = OfAllStreams(config, self.num_streams)

    def forward(self, streams: Tensor) -> Tensor:
        with in_own_precision(streams.device):
            (read,) = self.weights(streams)
            read = read.sigmoid() + self.weights.hyper_eps
            return (read.unsqueeze(-2) @ streams.to(read.dtype)).squeeze(-2).to(streams.dtype)


class ManifoldHyperConnections(HyperConnections):
    """Hyper-connections with doubly stochastic mixing, which preserves the mean of the streams.

    Manifold-constrained hyper-connections (Xie et al. 2025, "mHC", section 4), as DeepSeek-V4 has them.

    Args:
        weights: Computes how streams are read, written and mixed.
        norm_streams: Norm before that; an identity here, as all streams of a token are normalised together.
        slots: As in the base class.
    """

    options: ClassVar[dict[str, Any]] = {"num_streams": 4, "sinkhorn_iterations": 20, "hyper_eps": 1e-6}
    least: ClassVar[dict[str, int]] = {"num_streams": 1, "sinkhorn_iterations": 1, "hyper_eps": 0}
    stream_class = WeightedStreams

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        return cls(ManifoldWeights(config), **slots)


class StreamNorm(nn.Module):
    """RMS normalisation of every stream by itself, with a factor for each of its channels."""

    parameter_roles: ClassVar[dict[str, str]] = {"weight": "gain"}

    def __init__(self, num_streams: int, config: ZooConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_streams, config.hidden_size))
        self.eps = config.layer_norm_eps

    def init_weights(self) -> None:
        init.ones_(self.weight)

    def forward(self, streams: Tensor) -> Tensor:
        """Normalise. *Shape:* (batch_size, seq_len, num_streams, hidden_size), unchanged."""
        return F.rms_norm(streams, streams.shape[-1:], eps=self.eps) * self.weight


class StreamGates(nn.Module):
    """Read several streams: the mean of all, each normalised and multiplied by a gate for every channel."""

    input_grows: ClassVar[dict[str, bool]] = {"up_proj.weight": False}

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.num_streams = option(config, GatedHyperConnections, "num_streams")
        width, rank = self.num_streams * config.hidden_size, option(config, GatedHyperConnections, "gate_rank")
        self.norm = StreamNorm(self.num_streams, config)
        self.down_proj = nn.Linear(width, rank, bias=False)
        self.up_proj = nn.Linear(rank, width, bias=False)
        self.drawn_as = ("gated streams", f"reads {self.num_streams} streams by gates of rank {rank}")

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """The gated mean of all streams, (batch_size, seq_len, hidden_size), and its terms, concatenated."""
        normed = self.norm(streams)
        together = normed.flatten(-2)
        gates = self.up_proj(F.silu(self.down_proj(together) / self.num_streams)).sigmoid()
        return (gates.view_as(normed) * normed).mean(dim=-2), together


class GatedStreams(SeveralStreams):
    """Copies of the embedded tokens at the start, and at the end what gates read of them."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.drawn_as = ("gated streams", f"{self.num_streams} copies of the embeddings at the start")
        self.gates = StreamGates(config)

    def forward(self, streams: Tensor) -> Tensor:
        read: Tensor = self.gates(streams)[0]
        return read


class GatedHyperConnections(Residual):
    """Several streams: a sublayer reads them through gates, and writes a share to each, with weights up to 2.

    As Qwen4's experimental models have them; the input is normalised, so that no norm need precede a sublayer.

    Args:
        gates: Read gates.
        write: Makes the shares.
        slots: As in the base class; norms and scales on the skip connection and after the sum act on every stream.
    """

    options: ClassVar[dict[str, Any]] = {"num_streams": 4, "gate_rank": 32}
    least: ClassVar[dict[str, int]] = {"num_streams": 1, "gate_rank": 1}
    stream_class = GatedStreams

    def __init__(self, gates: StreamGates, write: nn.Module, **slots: nn.Module) -> None:
        super().__init__(**slots)
        self.gates = gates
        self.write = write

    @classmethod
    def unread(cls, config: ZooConfig) -> tuple[str, ...]:
        """Settings that models with it do not read: streams have their own norms, and there may be no others."""
        others = (config.final_norm, config.embedding_norm, config.mlp_inner_norm, config.qk_norm is not None)
        return ("norm",) if config.norm_placement == NormPlacement.NONE and not any(others) else ()

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        num_streams = option(config, cls, "num_streams")
        write = nn.Linear(num_streams * config.hidden_size, num_streams, bias=False)
        return cls(StreamGates(config), write, **slots)

    def forward(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        read, together = self.gates(hidden_states)
        shares = 2 * (self.write(together) / self.gates.num_streams).sigmoid()
        branch = self.branch(read, sublayer, *args, **kwargs)
        return self.norm_out(self.skip(hidden_states) + shares.unsqueeze(-1) * branch.unsqueeze(-2))
