"""Residual connections that read earlier states: by attention, by learned weights, or the embeddings alone."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.base.errors import ConfigError
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
        *_, last = hidden_states.unbind(dim=-2)
        branch = self.branch(last if self.read is None else self.read(hidden_states), sublayer, *args, **kwargs)
        if self.begins_vector:
            return torch.cat([hidden_states, self.norm_out(branch).unsqueeze(-2)], dim=-2)
        written = self.norm_out(self.skip(last) + branch)
        return torch.cat([hidden_states[..., :-1, :], written.unsqueeze(-2)], dim=-2)


class TwoVectors(Stream):
    """The embeddings twice at the start, and the first vector at the end."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()

    def open(self, hidden_states: Tensor) -> Tensor:
        """Begin with the embeddings. *Shape:* (batch_size, seq_len, 2, hidden_size)."""
        return torch.stack((hidden_states, hidden_states), dim=-2)

    def forward(self, states: Tensor) -> Tensor:
        """Return the first. *Shape:* (batch_size, seq_len, num_vectors, hidden_size) to (..., hidden_size)."""
        return states[..., 0, :]


class MixedStates(TwoVectors):
    """The mixture that the next sublayer reads, then the embedding and the sum after every sublayer, a vector each."""

    grows = True
    drawn_as = ("mixture over depth", "learned weights of all earlier states")


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


class WithEmbeddings(TwoVectors):
    """The residual stream and the embedded tokens, which no layer changes."""

    drawn_as = ("stream without embeddings", "kept next to it for every layer")


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
