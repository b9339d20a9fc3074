"""Gated hyper-connections: several residual streams that gates read channel by channel, and that are not mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.models.choices import NormPlacement
from zoo.models.configuration import ZooConfig
from zoo.models.parts import option
from zoo.models.residual import Residual, SeveralStreams


class StreamNorm(nn.Module):
    """RMS normalisation of every stream by itself, with a factor for each of its channels."""

    parameter_roles: ClassVar[dict[str, str]] = {"weight": "gain"}

    def __init__(self, num_streams: int, config: ZooConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_streams, config.hidden_size))
        self.eps = config.layer_norm_eps

    def init_weights(self) -> None:
        """Begin with norms alone."""
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
        """Apply the sublayer."""
        read, together = self.gates(hidden_states)
        shares = 2 * (self.write(together) / self.gates.num_streams).sigmoid()
        branch = self.branch(read, sublayer, *args, **kwargs)
        return self.norm_out(self.skip(hidden_states) + shares.unsqueeze(-1) * branch.unsqueeze(-2))
