"""The layers that stacks are made of. Every forward reads like the figure of its paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import build_attention
from .feed_forward import build_feed_forward
from .mixers.base import build_mixer
from .residual import build_residual, first

if TYPE_CHECKING:
    from .attention import Attention
    from .configuration import ZooConfig
    from .context import EarlierLayers
    from .residual import Residual


class TransformerLayer(GradientCheckpointingLayer):
    """Base of all layers: self-attention, cross attention if there is a source, then the feed-forward network.

    A layer says how the first and the last join the residual stream: `mix_tokens` and `feed_forward`. The arguments
    that carry gradients come first and are passed by position, as reentrant gradient checkpointing needs.
    """

    cross_attn: Attention
    cross_attn_residual: Residual

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        position_bias: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        """Transform the residual stream.

        Args:
            hidden_states: *Shape:* (batch_size, seq_len, hidden_size)
            attention_mask: Mask of self-attention, in the backend's form.
            position_bias: Added to the scores of self-attention.
                *Shape:* (batch_size, num_attention_heads, seq_len, key_len)
            encoder_hidden_states: Input of cross attention. *Shape:* (batch_size, source_len, hidden_size)
            encoder_attention_mask: Mask of cross attention, in the backend's form.
            kwargs: `position_embeddings`, `past_key_values`, `step` (how many layers were applied before), `earlier`
                (what layers keep for later ones) and what attention backends take.

        Returns:
            *Shape:* as hidden_states.
        """
        hidden_states = self.mix_tokens(hidden_states, attention_mask, position_bias, **kwargs)
        if encoder_hidden_states is not None:
            source = (encoder_attention_mask, None, encoder_hidden_states)
            hidden_states = self.cross_attn_residual(hidden_states, self.cross_attn, *source, **kwargs)
        return self.feed_forward(hidden_states, **self.counted(**kwargs))

    def mix_tokens(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Let tokens see each other: self-attention in its residual connection.

        Args:
            hidden_states: *Shape:* (batch_size, seq_len, hidden_size)
            args: The mask and the position bias.

        Returns:
            *Shape:* as hidden_states.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither mix_tokens nor a forward")

    def feed_forward(self, hidden_states: Tensor, **counted: Tensor | None) -> Tensor:
        """Transform every token by itself. *Shape:* (batch_size, seq_len, hidden_size), unchanged.

        Args:
            counted: For a network that counts tokens, and for no other: `is_token`.
        """
        return hidden_states

    def counted(self, earlier: EarlierLayers | None = None, **kwargs: Any) -> dict[str, Tensor | None]:
        """Further arguments of a feed-forward network: `is_token` if it counts tokens."""
        counts = self.training and getattr(getattr(self, "mlp", None), "counts_tokens", False)
        return {"is_token": earlier.is_token} if counts and earlier is not None else {}


class EncoderLayer(TransformerLayer):
    """Self-attention, then the feed-forward network (Vaswani et al. 2017, figure 1, left)."""

    is_causal = False

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = build_mixer(config, layer_idx, is_causal=self.is_causal)
        self.self_attn_residual: nn.Module = build_residual(config, layer_idx, opens_layer=True)
        self.mlp = build_feed_forward(config, layer_idx)
        self.mlp_residual = build_residual(config, layer_idx)

    def mix_tokens(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Self-attention. Arguments as in the base class."""
        return self.self_attn_residual(hidden_states, self.self_attn, *args, **kwargs)

    def feed_forward(self, hidden_states: Tensor, **counted: Tensor | None) -> Tensor:
        """The feed-forward network. *Shape:* (batch_size, seq_len, hidden_size), unchanged."""
        return self.mlp_residual(hidden_states, self.mlp, **counted)


class DecoderLayer(EncoderLayer):
    """Causal self-attention, cross attention if there is an encoder, then the feed-forward network (figure 1, right).

    Args:
        config: The configuration of the stack; `add_cross_attention` adds cross attention.
    """

    is_causal = True

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        if config.add_cross_attention:
            self.cross_attn = build_attention(config, layer_idx, is_cross=True)
            self.cross_attn_residual = build_residual(config, layer_idx)


class ParallelEncoderLayer(TransformerLayer):
    """`x + attention(norm(x)) + mlp(norm(x))`: both sublayers read the same input (GPT-J; PaLM, section 2)."""

    is_causal = False

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = build_mixer(config, layer_idx, is_causal=self.is_causal)
        self.mlp = build_feed_forward(config, layer_idx)
        self.residual = build_residual(config, layer_idx, opens_layer=True)

    def mix_tokens(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Both sublayers; none is left for `feed_forward`. Arguments as in the base class."""
        return self.residual(hidden_states, self.branches, *args, **kwargs)

    def branches(self, normed: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The sum of both sublayers.

        Args:
            normed: The normed residual stream. *Shape:* (batch_size, seq_len, hidden_size)

        Returns:
            *Shape:* as normed.
        """
        return first(self.self_attn(normed, *args, **kwargs)) + first(self.mlp(normed, **self.counted(**kwargs)))


class ParallelDecoderLayer(ParallelEncoderLayer):
    """The same with causal self-attention, and cross attention after it if there is an encoder.

    Args:
        config: The configuration of the stack; `add_cross_attention` adds cross attention.
    """

    is_causal = True

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        if config.add_cross_attention:
            self.cross_attn = build_attention(config, layer_idx, is_cross=True)
            self.cross_attn_residual = build_residual(config, layer_idx)


def encoder_layer(config: ZooConfig, layer_idx: int) -> nn.Module:
    """Build an encoder layer with sequential or parallel sublayers, by the configuration."""
    return (ParallelEncoderLayer if config.parallel_residual else EncoderLayer)(config, layer_idx)


def decoder_layer(config: ZooConfig, layer_idx: int) -> nn.Module:
    """Build a decoder layer with sequential or parallel sublayers, by the configuration."""
    return (ParallelDecoderLayer if config.parallel_residual else DecoderLayer)(config, layer_idx)
