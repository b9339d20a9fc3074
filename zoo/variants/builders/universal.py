"""The Universal Transformer."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init

from zoo.models import DecoderLayer, EncoderLayer, Transformer, ZooConfig


class StepEmbedding(nn.Module):
    """A learned vector for every application of the shared layer."""

    parameter_roles: ClassVar[dict[str, str]] = {"weight": "table"}

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.std = config.initializer_range
        self.weight = nn.Parameter(torch.empty(config.num_hidden_layers, config.hidden_size))
        self.drawn_as = ("step embedding", f"{config.num_hidden_layers} × {config.hidden_size}, added to the stream")

    def init_weights(self) -> None:
        init.normal_(self.weight, mean=0.0, std=self.std)

    def forward(self, hidden_states: Tensor, step: int) -> Tensor:
        """Add the step's vector. *Shape:* (batch_size, seq_len, hidden_size), unchanged."""
        return hidden_states + self.weight[step]


class UniversalEncoderLayer(EncoderLayer):
    """A layer that receives how often it has been applied."""

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.step_embedding = StepEmbedding(config)

    def forward(self, hidden_states: Tensor, *args: Any, step: int = 0, **kwargs: Any) -> Tensor:
        return super().forward(self.step_embedding(hidden_states, step), *args, step=step, **kwargs)


class UniversalDecoderLayer(UniversalEncoderLayer, DecoderLayer):
    """The same with causal self-attention, and with cross attention after an encoder."""


def universal(config: ZooConfig) -> Transformer:
    return Transformer(
        encoder_layer=UniversalEncoderLayer, decoder_layer=UniversalDecoderLayer, supports_unpadding=True
    )
