"""Residual streams of several vectors a token: how they begin and end, and how sublayers read and write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config, NoPlainForm
from .norms import build_norm
from .residual import BareSublayer, Residual, skipped, summed


class ConnectionWeights(nn.Module):
    """How streams are read, written and mixed, in part computed of the token (Zhu et al. 2024, equations 10 to 13)."""

    def __init__(self, config: Config, stream: int) -> None:
        super().__init__()
        self.read = nn.Parameter(torch.eye(config.num_streams)[stream].clone())
        self.write = nn.Parameter(torch.ones(config.num_streams))
        self.mix = nn.Parameter(torch.eye(config.num_streams))
        self.weight = nn.Parameter(torch.zeros(2 + config.num_streams, config.hidden_size))
        self.scale = nn.Parameter(torch.full((2,), 0.01))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """*Shape:* (batch, length, streams, hidden_size) -> twice (..., streams), and (..., streams, streams)."""
        read, write, mix = torch.tanh(x @ self.weight.T).split((1, 1, x.shape[-2]), dim=-1)
        read, write = self.scale[0] * read.squeeze(-1), self.scale[1] * write.squeeze(-1)
        return read + self.read, write + self.write, self.scale[0] * mix + self.mix


class ManifoldWeights(nn.Module):
    """How streams are read, written and mixed: by doubly stochastic matrices (Xie et al. 2025, mHC, section 4)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        count = config.num_streams * (2 + config.num_streams)
        self.weight = nn.Parameter(torch.empty(count, config.num_streams * config.hidden_size))
        self.base = nn.Parameter(torch.zeros(count))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """*Shape:* (batch, length, streams, hidden_size) -> twice (..., streams), and (..., streams, streams)."""
        n, eps = self.config.num_streams, self.config.hyper_eps
        x = x.flatten(-2)
        x = F.rms_norm(x, x.shape[-1:], eps=self.config.layer_norm_eps)
        numbers, bases = (x @ self.weight.T).split([n, n, n * n], dim=-1), self.base.split([n, n, n * n])
        read, write, mix = (self.scale[i] * numbers[i] + bases[i] for i in range(3))
        mix = mix.unflatten(-1, (n, n)).softmax(dim=-1) + eps
        mix = mix / (mix.sum(dim=-2, keepdim=True) + eps)
        for _ in range(self.config.sinkhorn_iterations - 1):
            # Rows and columns are brought to sum one in turns (Sinkhorn and Knopp 1967).
            mix = mix / (mix.sum(dim=-1, keepdim=True) + eps)
            mix = mix / (mix.sum(dim=-2, keepdim=True) + eps)
        return read.sigmoid() + eps, 2 * write.sigmoid(), mix


class HyperConnections(Residual):
    """Several streams, which sublayers read, write and mix (Zhu et al. 2024, Hyper-Connections, section 2)."""

    def __init__(self, config: Config, stream: int) -> None:
        super().__init__(config)
        if config.residual == "hyper-connections":
            self.norm_streams = build_norm(config, config.hidden_size, config.layer_norm_eps)
            self.weights: nn.Module = ConnectionWeights(config, stream)
        else:
            self.weights = ManifoldWeights(config)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Write to the streams. *Shape:* (batch, length, streams, hidden_size), unchanged."""
        read, write, mix = self.weights(self.norm_streams(x) if self.config.residual == "hyper-connections" else x)
        mean = (read[..., None, :] @ x).squeeze(-2)
        branch = self.branch(mean, sublayer)
        return summed(mix.mT @ skipped(x, self.config) + write[..., None] * branch[..., None, :], self, self.config)


class StreamNorm(nn.Module):
    """RMSNorm of each stream with weights of its own."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(config.num_streams, config.hidden_size)), config.layer_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], eps=self.eps) * self.weight


class StreamGates(nn.Module):
    """The mean of all streams, with a gate for each channel made of all of them (Qwen team 2026)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.num_streams * config.hidden_size
        self.norm = StreamNorm(config)
        self.down_proj = nn.Linear(width, config.gate_rank, bias=False)
        self.up_proj = nn.Linear(config.gate_rank, width, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """*Shape:* (batch, length, streams, hidden_size) -> (..., hidden_size) and (..., streams * hidden_size)."""
        normed = self.norm(x)
        together = normed.flatten(-2)
        gates = self.up_proj(F.silu(self.down_proj(together) / x.shape[-2])).sigmoid()
        return (gates.view_as(normed) * normed).mean(dim=-2), together


class GatedHyperConnections(Residual):
    """Several streams, which a sublayer reads through gates and to each of which it writes a share, up to twice."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.gates = StreamGates(config)
        self.write = nn.Linear(config.num_streams * config.hidden_size, config.num_streams, bias=False)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Write to the streams. *Shape:* (batch, length, streams, hidden_size), unchanged."""
        read, together = self.gates(x)
        shares = 2 * (self.write(together) / self.config.num_streams).sigmoid()
        branch = self.branch(read, sublayer)
        return summed(skipped(x, self.config) + shares[..., None] * branch[..., None, :], self, self.config)


class DepthAttention(nn.Module):
    """Attention of one learned query to the vectors of a token, with the normed vectors as keys."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.query, self.eps = nn.Parameter(torch.zeros(config.hidden_size)), config.layer_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        """*Shape:* (batch, length, vectors, hidden_size) -> (batch, length, hidden_size)."""
        weights = (F.rms_norm(x, x.shape[-1:], eps=self.eps) @ self.query[:, None]).softmax(dim=-2)
        return (weights.mT @ x).squeeze(-2)


class AttentionResidual(Residual):
    """A sublayer attends to what earlier ones wrote (Kimi Team 2026, Attention Residuals)."""

    def __init__(self, config: Config, layer_idx: int, opens_layer: bool) -> None:
        super().__init__(config)
        # The very first sublayer has only the embedding to read.
        is_first = opens_layer and layer_idx == 0 and not config.share_layers
        self.read = None if is_first else DepthAttention(config)
        if config.layers_per_block:
            self.begins_vector = opens_layer and layer_idx % config.layers_per_block == 0

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Append what the sublayer writes, or add it to the last vector. *Shape:* (batch, length, vectors, width)."""
        last = x[:, :, -1] if self.read is None else self.read(x)
        branch = self.branch(last, sublayer)
        if self.config.layers_per_block and not self.begins_vector:
            # Sublayers of one block write into one vector, as the plain sum does.
            branch = skipped(x[:, :, -1], self.config) + branch
            x = x[:, :, :-1]
        return torch.cat([x, summed(branch, self, self.config)[:, :, None]], dim=2)


class ReadingWeights(nn.Module):
    """How the end reads the streams, computed of all of them together."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.num_streams, config.num_streams * config.hidden_size))
        self.base = nn.Parameter(torch.zeros(config.num_streams))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """*Shape:* (batch, length, streams, hidden_size) -> (batch, length, streams)."""
        x = x.flatten(-2)
        x = F.rms_norm(x, x.shape[-1:], eps=self.config.layer_norm_eps)
        return (self.scale * (x @ self.weight.T) + self.base).sigmoid() + self.config.hyper_eps


class StreamEnd(nn.Module):
    """The end of the streams: one vector a token again."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        if config.residual == "gated-hyper-connections":
            self.gates = StreamGates(config)
        elif config.residual == "manifold-hyper-connections":
            self.weights = ReadingWeights(config)
        else:
            self.read = DepthAttention(config)

    def forward(self, x: Tensor) -> Tensor:
        if self.config.residual == "gated-hyper-connections":
            return self.gates(x)[0]
        if self.config.residual == "manifold-hyper-connections":
            # A sum with weights that depend on the token.
            return (self.weights(x)[..., None, :] @ x).squeeze(-2)
        # Attention to all that was written.
        return self.read(x)


def begun(x: Tensor, config: Config) -> Tensor:
    """The stream that the first layer reads."""
    if config.residual == "attention-residuals":
        return x[:, :, None]
    if config.residual in ("lambdas", "depth-weighted-average"):
        return torch.stack([x, x], dim=2)
    if config.residual.endswith("hyper-connections"):
        return x[:, :, None].expand(-1, -1, config.num_streams, -1)
    return x


def ended(x: Tensor, owner: Any, config: Config) -> Tensor:
    """What the last layer leaves, one vector a token."""
    if config.residual == "hyper-connections":
        return x.sum(dim=2)
    if config.residual in ("lambdas", "depth-weighted-average"):
        return x[:, :, 0]
    if config.residual in ("gated-hyper-connections", "manifold-hyper-connections", "attention-residuals"):
        return owner.stream(x)
    return x


class LambdaResidual(Residual):
    """The plain sum; a layer scales the stream and adds embeddings, by learned scalars (Karpathy 2025, nanochat)."""

    def __init__(self, config: Config, opens_layer: bool) -> None:
        super().__init__(config)
        self.mix = Lambdas() if opens_layer else None

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Add to the first of two streams. *Shape:* (batch, length, 2, hidden_size), unchanged."""
        stream, embedded = x.unbind(dim=2)
        if self.mix is not None:
            stream = self.mix(stream, embedded)
        branch = self.branch(stream, sublayer)
        return torch.stack([summed(skipped(stream, self.config) + branch, self, self.config), embedded], dim=2)


class DepthMixture(nn.Module):
    """A weighted sum of states, at first the last one (Pagliardini et al. 2024, DenseFormer, section 3)."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(count)[-1].clone())

    def forward(self, states: Tensor) -> Tensor:
        """*Shape:* (batch, length, states, hidden_size) -> (batch, length, hidden_size)."""
        return (self.weight[:, None] * states).sum(dim=2)


class DepthWeightedResidual(Residual):
    """The plain sum, mixed with the embedding and earlier sums (Charpentier and Samuel 2024, GPT-BERT, section 3)."""

    def __init__(self, config: Config, layer_idx: int, opens_layer: bool) -> None:
        super().__init__(config)
        states = 2 * layer_idx + (2 if opens_layer else 3)
        self.mix = DepthMixture(layer_idx + 2 if config.parallel_residual else states)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Read the mixture, the first vector, and append the sum. *Shape:* (batch, length, vectors, hidden_size)."""
        total = summed(skipped(x[:, :, 0], self.config) + self.branch(x[:, :, 0], sublayer), self, self.config)
        states = torch.cat([x[:, :, 1:], total[:, :, None]], dim=2)
        return torch.cat([self.mix(states)[:, :, None], states], dim=2)


class Lambdas(nn.Module):
    """Learned scalars on the stream and on the embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, x: Tensor, embedded: Tensor) -> Tensor:
        return self.weight[0] * x + self.weight[1] * embedded


def build_residual(
    config: Config,
    layer_idx: int,
    opens_layer: bool = False,
    norms_branch: bool = False,
    drops_skip: bool = False,
    drops: bool = True,
    stands_bare: bool = False,
) -> nn.Module:
    """The residual connection that the configuration names."""
    if stands_bare:
        return BareSublayer()
    if config.residual in ("plain", "no-first-norm", "normalized"):
        return Residual(
            config,
            norms_branch=norms_branch,
            drops_skip=drops_skip,
            drops=drops,
            is_first=config.residual == "no-first-norm" and opens_layer and layer_idx == 0,
        )
    if norms_branch or drops_skip or not drops:
        raise NoPlainForm("residual")
    if config.residual in ("hyper-connections", "manifold-hyper-connections"):
        return HyperConnections(config, (2 * layer_idx + (0 if opens_layer else 1)) % config.num_streams)
    if config.residual == "gated-hyper-connections":
        return GatedHyperConnections(config)
    if config.residual == "attention-residuals":
        return AttentionResidual(config, layer_idx, opens_layer)
    if config.residual == "depth-weighted-average":
        return DepthWeightedResidual(config, layer_idx, opens_layer)
    if config.residual == "lambdas":
        return LambdaResidual(config, opens_layer)
    raise NoPlainForm("residual")
