"""NormFormer: norms and scales that even out the gradients of deep pre-norm Transformers."""

from typing import Any

from torch import Tensor

from zoo.models import Attention, DecoderLayer, EncoderLayer, Transformer, ZooConfig
from zoo.models.attention import Mixed
from zoo.models.norms import build_norm
from zoo.models.residual import LearnedScale


class HeadScaledAttention(Attention):
    """Attention with heads that are weighted by learned scalars before they are mixed."""

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        self.head_scale = LearnedScale(config.num_attention_heads, 1.0)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        mixed, weights = super().attend(query, key, value, attention_mask, **kwargs)
        return self.head_scale(mixed.transpose(-1, -2)).transpose(-1, -2), weights


class NormFormerEncoderLayer(EncoderLayer):
    """A pre-norm layer with scaled heads and a norm after each attention."""

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.replace_attention("self_attn", HeadScaledAttention(config, layer_idx, is_causal=self.is_causal))
        self.self_attn_residual.norm_branch = build_norm(config)
        if hasattr(self, "cross_attn"):
            self.replace_attention("cross_attn", HeadScaledAttention(config, layer_idx, is_cross=True))
            self.cross_attn_residual.norm_branch = build_norm(config)


class NormFormerDecoderLayer(NormFormerEncoderLayer, DecoderLayer):
    """The same with causal self-attention, and with cross attention after an encoder."""


def normformer(config: ZooConfig) -> Transformer:
    return Transformer(
        encoder_layer=NormFormerEncoderLayer, decoder_layer=NormFormerDecoderLayer, supports_unpadding=True
    )
