"""Depth-weighted averages: after every sublayer, the stream is a learned mixture of all states so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init

from zoo.base.errors import ConfigError
from zoo.models.configuration import ZooConfig
from zoo.models.residual import Residual, Stream


class MixedStates(Stream):
    """The mixture that the next sublayer reads, then the embedding and the sum after every sublayer, a vector each."""

    grows = True

    drawn_as = ("mixture over depth", "learned weights of all earlier states")

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()

    def open(self, hidden_states: Tensor) -> Tensor:
        """Begin with the embeddings. *Shape:* (batch_size, seq_len, 2, hidden_size)."""
        return torch.stack((hidden_states, hidden_states), dim=-2)

    def forward(self, states: Tensor) -> Tensor:
        """Return the mixture. *Shape:* (batch_size, seq_len, num_states, hidden_size) to (..., hidden_size)."""
        return states[..., 0, :]


class DepthMixture(nn.Module):
    """A learned sum of the embedding and the states so far (DenseFormer, Pagliardini et al. 2024, section 3)."""

    parameter_roles: ClassVar[dict[str, str]] = {"weight": "scalar"}

    def __init__(self, num_states: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_states))
        self.drawn_as = ("mixture over depth", "learned weights of all states so far")

    def init_weights(self) -> None:
        """Begin with the last state alone, which is the plain residual connection."""
        init.copy_(self.weight, torch.eye(len(self.weight))[-1])

    def forward(self, states: Tensor) -> Tensor:
        """Mix the last states; a layer alone has fewer. *Shape:* (..., num_states, width) to (..., width)."""
        return (self.weight[-states.shape[-2] :, None].to(states.dtype) * states).sum(dim=-2)


class DepthWeightedResidual(Residual):
    """The plain sum, then a mixture of it with the embedding and the sums after all earlier sublayers.

    DenseFormer (Pagliardini et al. 2024) mixes after whole layers; here, as in GPT-BERT, it is after every sublayer.
    """

    stream_class = MixedStates

    def __init__(self, mix: DepthMixture, **slots: nn.Module) -> None:
        super().__init__(**slots)
        self.mix = mix

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Refuse stacks in which the number of earlier sublayers is not fixed by the layer."""
        for name in ("is_encoder_decoder", "add_cross_attention", "share_layers", "num_nextn_predict_layers"):
            if value := getattr(config, name, False):
                what = "cross attention" if name in ("is_encoder_decoder", "add_cross_attention") else f"{name}={value}"
                raise ConfigError(
                    f"residual='depth-weighted-average' was given with {what}; it has weights of every earlier "
                    "sublayer, and is for the layers of one stack, each with its own weights"
                )

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        earlier = layer_idx if config.parallel_residual else 2 * layer_idx + (not opens_layer)
        return cls(DepthMixture(earlier + 2), **slots)

    def forward(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        """Apply the sublayer to the mixture, and mix again. *Shape:* (batch_size, seq_len, num_states, hidden_size)."""
        written = super().forward(hidden_states[..., 0, :], sublayer, *args, **kwargs)
        states = torch.cat([hidden_states[..., 1:, :], written.unsqueeze(-2)], dim=-2)
        return torch.cat([self.mix(states).unsqueeze(-2), states], dim=-2)
