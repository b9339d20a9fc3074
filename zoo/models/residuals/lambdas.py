"""Learned scalars on the residual stream and on the embeddings, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init

from zoo.models.configuration import ZooConfig
from zoo.models.residual import Residual, Stream


class WithEmbeddings(Stream):
    """The residual stream and the embedded tokens, which no layer changes."""

    drawn_as = ("stream without embeddings", "kept next to it for every layer")

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()

    def open(self, hidden_states: Tensor) -> Tensor:
        """Begin with the embeddings. *Shape:* (batch_size, seq_len, 2, hidden_size)."""
        return torch.stack((hidden_states, hidden_states), dim=-2)

    def forward(self, streams: Tensor) -> Tensor:
        """Leave them out. *Shape:* (batch_size, seq_len, 2, hidden_size) to (batch_size, seq_len, hidden_size)."""
        return streams[..., 0, :]


class Lambdas(nn.Module):
    """`lambda * x + lambda_0 * x_0`, two learned scalars."""

    parameter_roles: ClassVar[dict[str, str]] = {"weight": "scalar"}

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2))
        self.drawn_as = ("λ x + λ₀ x₀", "learned scalars on the stream and on the embeddings")

    def init_weights(self) -> None:
        """Let the residual stream through and nothing of the embeddings."""
        init.copy_(self.weight, torch.tensor([1.0, 0.0]))

    def forward(self, hidden_states: Tensor, embedded: Tensor) -> Tensor:
        """Mix. *Shape:* (..., hidden_size) each, unchanged."""
        return self.weight[0] * hidden_states + self.weight[1] * embedded


class LambdaResidual(Residual):
    """The plain sum; before each layer, the stream is scaled and the embeddings are added, by learned scalars.

    As `resid_lambdas` and `x0_lambdas` of modded-nanogpt (Jordan et al. 2024) and nanochat (Karpathy 2025).

    Args:
        mix: The scalars, of the first connection of a layer only.
        slots: As in the base class.
    """

    stream_class = WithEmbeddings

    def __init__(self, mix: Lambdas | None = None, **slots: nn.Module) -> None:
        super().__init__(**slots)
        self.mix = mix

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        return cls(Lambdas() if opens_layer else None, **slots)

    def forward(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        """Apply the sublayer. *Shape:* (batch_size, seq_len, 2, hidden_size)."""
        stream, embedded = hidden_states.unbind(dim=-2)
        if self.mix is not None:
            stream = self.mix(stream, embedded)
        return torch.stack((super().forward(stream, sublayer, *args, **kwargs), embedded), dim=-2)
