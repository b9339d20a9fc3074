"""The layers that stacks are made of, and their feed-forward networks. Every forward reads like its paper's figure."""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from zoo.base.errors import ConfigError, enumerate_names
from zoo.fast.modules import Dropout, Identity

from .attention import Attention
from .configuration import ZooConfig
from .context import EarlierLayers
from .norms import build_norm
from .parts import ACTIVATIONS, ATTENTIONS, FEED_FORWARDS, MIXERS
from .residual import Residual, build_residual

MULTI_HEAD = "multi-head"  # The attention that a variant's own may replace


class FeedForward(nn.Module):
    """`down_proj(act(up_proj(x)))`, the position-wise network (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        self.act_fn = ACTIVATIONS.get(config.hidden_act)()
        self.dropout = Dropout(config.activation_dropout)
        self.norm = build_norm(config, config.intermediate_size) if config.mlp_inner_norm else Identity()

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Transform every position by itself. *Shape:* (batch_size, seq_len, hidden_size), unchanged."""
        inner = self.act_fn(self.up_proj(hidden_states))
        return self.down_proj(self.norm(self.dropout(inner)))


class GatedFeedForward(FeedForward):
    """`down_proj(act(gate_proj(x)) * up_proj(x))` (Shazeer 2020, "GLU Variants Improve Transformer").

    With `hidden_act` silu this is SwiGLU, with gelu GeGLU, with relu ReGLU.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Transform every position by itself. *Shape:* (batch_size, seq_len, hidden_size), unchanged."""
        gate, up = self.project(hidden_states)
        return self.down_proj(self.norm(self.dropout(self.act_fn(gate) * up)))

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """The activated gate and its input. *Shape:* (batch_size, seq_len, intermediate_size) each."""
        return self.gate_proj(hidden_states), self.up_proj(hidden_states)


class TransformerLayer(GradientCheckpointingLayer):
    """Base of all layers, which define their forward with the arguments of [`EncoderLayer`][]'s.

    The arguments that carry gradients come first and are passed by position, as reentrant gradient checkpointing needs.
    """

    cross_attn: Attention
    cross_attn_residual: Residual
    mlp: nn.Module

    def build_cross_attention(self, config: ZooConfig, layer_idx: int) -> None:
        self.cross_attn = ATTENTIONS.get(config.attention)(config, layer_idx, is_cross=True)
        self.cross_attn_residual = build_residual(config, layer_idx)

    def read_source(self, hidden_states: Tensor, states: Tensor, mask: Any, **kwargs: Any) -> Tensor:
        """Cross attention, without a window. Arguments as for the forward, in which the source is second."""
        kwargs["sliding_window"] = None
        return self.cross_attn_residual(hidden_states, self.cross_attn, mask, None, states, **kwargs)

    def replace_attention(self, name: str, own: Attention, *valid: str) -> None:
        """Replace an attention by a variant's own; raise ConfigError where settings name another part.

        Args:
            name: Which one: "self_attn" or "cross_attn".
            own: Replaces it.
            valid: Values of `attention` with which it may, besides "multi-head".
        """
        config = own.config
        if config.attention not in (MULTI_HEAD, *valid):
            raise ConfigError(
                f"attention={config.attention!r} was given, but variant {config.variant!r} has its own attention; "
                f"valid: {enumerate_names([MULTI_HEAD, *valid])}"
            )
        setattr(self, name, own)

    def routed(self, **kwargs: Any) -> dict[str, EarlierLayers | None]:
        """Further arguments of a feed-forward network in training: `earlier` if it has a router."""
        return {"earlier": kwargs.get("earlier")} if hasattr(self.mlp, "router") else {}


class AttentionEverywhere:
    """Attention in every layer."""

    layer_type = None


def build_mixer(config: ZooConfig, layer_idx: int, *, is_causal: bool) -> Any:
    """Build what lets the tokens of a layer see each other: attention, or in layers of its type the mixer."""
    if config.mixer_layer_type is not None and config.types_of_layers()[layer_idx] == config.mixer_layer_type:
        return MIXERS.get(config.mixer)(config, layer_idx)
    return ATTENTIONS.get(config.attention)(config, layer_idx, is_causal=is_causal)


class EncoderLayer(TransformerLayer):
    """Self-attention, then the feed-forward network (Vaswani et al. 2017, figure 1, left)."""

    is_causal = False

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__()
        if config.parallel_residual:
            raise ConfigError(f"parallel_residual=True was given; layers of {config.variant!r} have sublayers in a row")
        self.self_attn = build_mixer(config, layer_idx, is_causal=self.is_causal)
        self.self_attn_residual: nn.Module = build_residual(config, layer_idx, opens_layer=True)
        self.mlp = build_feed_forward(config, layer_idx)
        self.mlp_residual = build_residual(config, layer_idx)
        if self.is_causal and config.add_cross_attention:
            self.build_cross_attention(config, layer_idx)

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
        hidden_states = self.self_attn_residual(hidden_states, self.self_attn, attention_mask, position_bias, **kwargs)
        if encoder_hidden_states is not None:
            hidden_states = self.read_source(hidden_states, encoder_hidden_states, encoder_attention_mask, **kwargs)
        routed = self.routed(**kwargs) if self.training else {}
        return self.mlp_residual(hidden_states, self.mlp, **routed)


class DecoderLayer(EncoderLayer):
    """Causal self-attention, cross attention after an encoder, then the feed-forward network (figure 1, right)."""

    is_causal = True


class ParallelEncoderLayer(TransformerLayer):
    """`x + attention(norm(x)) + mlp(norm(x))`: both sublayers read the same input (GPT-J; PaLM, section 2)."""

    is_causal = False

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = build_mixer(config, layer_idx, is_causal=self.is_causal)
        self.mlp = build_feed_forward(config, layer_idx)
        self.residual = build_residual(config, layer_idx, opens_layer=True)
        if self.is_causal and config.add_cross_attention:
            self.build_cross_attention(config, layer_idx)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Any = None,
        position_bias: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        """Transform the residual stream. Arguments as for [`EncoderLayer`][]."""
        hidden_states = self.residual(hidden_states, self.branches, attention_mask, position_bias, **kwargs)
        if encoder_hidden_states is not None:
            hidden_states = self.read_source(hidden_states, encoder_hidden_states, encoder_attention_mask, **kwargs)
        return hidden_states

    def branches(self, normed: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The sum of both sublayers. *Shape:* (batch_size, seq_len, hidden_size), as the normed stream."""
        mixed, _ = self.self_attn(normed, *args, **kwargs)
        fed = self.mlp(normed, **(self.routed(**kwargs) if self.training else {}))
        return mixed + (fed[0] if isinstance(fed, tuple) else fed)


class ParallelDecoderLayer(ParallelEncoderLayer):
    """The same with causal self-attention, and cross attention after it with an encoder."""

    is_causal = True


def encoder_layer(config: ZooConfig, layer_idx: int) -> nn.Module:
    """Build an encoder layer with sequential or parallel sublayers, by the configuration."""
    return (ParallelEncoderLayer if config.parallel_residual else EncoderLayer)(config, layer_idx)


def decoder_layer(config: ZooConfig, layer_idx: int) -> nn.Module:
    """Build a decoder layer with sequential or parallel sublayers, by the configuration."""
    return (ParallelDecoderLayer if config.parallel_residual else DecoderLayer)(config, layer_idx)


def build_feed_forward(config: ZooConfig, layer_idx: int | None = None) -> nn.Module:
    part: Any = FEED_FORWARDS.get(config.feed_forward)
    same_in_all = layer_idx is None or not hasattr(part, "build")
    sublayer: nn.Module = part(config) if same_in_all else part.build(config, layer_idx)
    return sublayer
