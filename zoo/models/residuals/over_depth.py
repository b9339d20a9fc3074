"""Attention residuals: sublayers attend to what earlier ones wrote, instead of reading its sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.models.configuration import ZooConfig
from zoo.models.parts import option
from zoo.models.precision import at_least_float32, in_own_precision
from zoo.models.residual import Residual, Stream
from zoo.models.validation import require_own_layers


class DepthAttention(nn.Module):
    """Attention of a learned query to a token's vectors, normalised without a weight, which would be the query's."""

    input_grows: ClassVar[dict[str, bool]] = {"query": True}

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(config.hidden_size))
        self.eps = config.layer_norm_eps
        self.drawn_as = ("attention over depth", "a learned query reads what earlier sublayers wrote")

    def init_weights(self) -> None:
        """Begin with the mean of all vectors."""
        init.zeros_(self.query)

    def forward(self, vectors: Tensor) -> Tensor:
        """Read. *Shape:* (batch_size, seq_len, num_vectors, hidden_size) to (batch_size, seq_len, hidden_size)."""
        with in_own_precision(vectors.device):
            precise = vectors.to(at_least_float32(vectors.dtype))
            keys = F.rms_norm(precise, precise.shape[-1:], eps=self.eps)
            weights = (keys @ self.query.to(precise.dtype).unsqueeze(-1)).softmax(dim=-2)
            return (weights.mT @ precise).squeeze(-2).to(vectors.dtype)


class WrittenVectors(Stream):
    """The embedding and the outputs of all sublayers, a vector each; read by attention at the end."""

    grows = True

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.drawn_as = ("attention over depth", "a learned query reads what all sublayers wrote")
        self.read = DepthAttention(config)

    def open(self, hidden_states: Tensor) -> Tensor:
        """Begin with the embeddings. *Shape:* (batch_size, seq_len, 1, hidden_size)."""
        return hidden_states.unsqueeze(-2)

    def forward(self, vectors: Tensor) -> Tensor:
        """Read. *Shape:* (batch_size, seq_len, num_vectors, hidden_size) to (batch_size, seq_len, hidden_size)."""
        hidden_states: Tensor = self.read(vectors)
        return hidden_states


class AttentionResidual(Residual):
    """A sublayer reads a weighted mean of what earlier ones wrote, and writes its own vector.

    Attention residuals (Kimi Team 2026, "Attention Residuals"). With `layers_per_block` that many layers write into one
    vector, as the plain sum does, and attention is to these sums; 0 is for a vector of every sublayer.

    Args:
        read: Attention by which sublayers read the vectors; None for the very first one, with only the embedding.
        begins_vector: Whether the output of the sublayer begins a new vector.
        slots: As in the base class; those on the skip connection and after the sum act in a sum only.
    """

    options: ClassVar[dict[str, Any]] = {"layers_per_block": 0}
    least: ClassVar[dict[str, int]] = {"layers_per_block": 0}
    stream_class = WrittenVectors

    def __init__(self, read: nn.Module | None, begins_vector: bool, **slots: nn.Module) -> None:
        super().__init__(**slots)
        self.read = read
        self.begins_vector = begins_vector

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Require blocks of at most one layer if layers are shared."""
        if (layers := option(config, cls, "layers_per_block")) > 1:
            given, why = f"layers_per_block={layers}", "the first of a block begins a vector"
            require_own_layers(config, given, why, "layers_per_block=1, which weights saved with both fit")

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        layers = option(config, cls, "layers_per_block")
        is_first = opens_layer and layer_idx == 0 and not config.share_layers
        begins_vector = not layers or (opens_layer and layer_idx % layers == 0)
        return cls(None if is_first else DepthAttention(config), begins_vector, **slots)

    def forward(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        """Apply the sublayer."""
        *_, last = hidden_states.unbind(dim=-2)
        branch = self.branch(last if self.read is None else self.read(hidden_states), sublayer, *args, **kwargs)
        if self.begins_vector:
            return torch.cat([hidden_states, self.norm_out(branch).unsqueeze(-2)], dim=-2)
        written = self.norm_out(self.skip(last) + branch)
        return torch.cat([hidden_states[..., :-1, :], written.unsqueeze(-2)], dim=-2)
