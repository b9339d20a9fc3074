"""Frank Odom's "Transformers from Scratch in PyTorch", as a notebook retells it: a post-norm encoder-decoder."""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.base.errors import ConfigError, InputError
from zoo.fast.attention_backends import added_mask
from zoo.models import Attention, DecoderLayer, EncoderLayer, SinusoidalPosition, TokenEmbedding, Transformer, ZooConfig
from zoo.models.attention import Mixed
from zoo.models.transformer import BACKENDS, vocabulary_size

from .nlpt import no_mask


class OdomAttention(Attention):
    """Multi-head attention; with the quirks, all heads are one, and the softmax runs over the batch."""

    def __init__(self, config: ZooConfig, layer_idx: int, *, is_causal: bool = False, is_cross: bool = False) -> None:
        self.sees_the_future = is_causal and config.has_quirk("decoder-sees-the-future")
        super().__init__(config, layer_idx, is_causal=is_causal and not self.sees_the_future, is_cross=is_cross)
        self.num_heads = config.num_attention_heads
        self.softmax_over_batch = config.has_quirk("softmax-over-the-batch")
        if config.has_quirk("heads-share-weights"):
            for name in ("q_proj", "k_proj", "v_proj"):
                setattr(self, name, nn.Linear(config.hidden_size, self.head_dim, bias=config.attention_bias))
            self.q_norm, self.k_norm = (self._qk_norm(self.head_dim) for _ in range(2))

    def split_heads(self, projected: Tensor, norm: nn.Module | None = None) -> Tensor:
        heads = super().split_heads(projected, norm)
        return heads.expand(-1, self.num_heads, -1, -1) if heads.shape[1] == 1 else heads

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        if self.sees_the_future and attention_mask is not None:
            # The last query sees every key that is not masked for another reason than causality.
            attention_mask = attention_mask[:, :, -1:].expand(-1, -1, query.shape[2], -1)
        if not self.softmax_over_batch:
            return super().attend(query, key, value, attention_mask, **kwargs)
        scores = query @ key.transpose(-1, -2) * self.scaling
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if attention_mask is None:  # a position bias is the same in the whole batch and has no effect
            weights = scores.softmax(dim=0)
        else:  # a key that the whole batch masks has no weight at all
            attention_mask = added_mask(attention_mask, scores.dtype)
            weights = (scores + attention_mask).softmax(dim=0).masked_fill(attention_mask < 0, 0.0)
        weights = nn.functional.dropout(weights, self.dropout, self.training)
        return (weights @ value).transpose(1, 2), weights


class OdomEncoderLayer(EncoderLayer):
    """A post-norm layer with this document's attention."""

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.replace_attention("self_attn", OdomAttention(config, layer_idx, is_causal=self.is_causal))
        if hasattr(self, "cross_attn"):
            self.replace_attention("cross_attn", OdomAttention(config, layer_idx, is_cross=True))


class OdomDecoderLayer(OdomEncoderLayer, DecoderLayer):
    """The same with causal self-attention, and with cross attention."""


class OdomPosition(SinusoidalPosition):
    """The paper's table; with the quirks, cosines have exponents of their own, and the caller's embeddings change."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.own_exponents = config.has_quirk("cosines-have-own-exponents")
        self.in_place = config.has_quirk("changes-its-inputs")

    def table(self, position_ids: Tensor) -> Tensor:
        """Rows of the table: *Shape:* (batch_size or 1, seq_len, hidden_size)."""
        if not self.own_exponents:
            return super().table(position_ids)
        columns = torch.arange(self.width, dtype=torch.float32, device=position_ids.device)
        phases = position_ids[..., None].float() / self.theta ** (columns / self.width)
        return torch.where(columns % 2 == 0, phases.sin(), phases.cos())

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        encoded = super().embed(inputs_embeds, position_ids)
        return inputs_embeds.copy_(encoded) if self.in_place else encoded


class NoVocabulary(nn.Module):
    """Placeholder for token embeddings, which holds none."""

    def __init__(self, num_embeddings: int, config: ZooConfig) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        raise InputError(
            "token ids were given to a model with the quirk works-on-features; "
            "give inputs_embeds and decoder_inputs_embeds"
        )


def hidden_size(config: ZooConfig) -> int:
    """The number of outputs where features are predicted. Arguments as for `vocabulary_size`."""
    return config.hidden_size


def odom_style(config: ZooConfig) -> Transformer:
    works_on_features = config.has_quirk("works-on-features")
    if works_on_features and (config.tie_word_embeddings or config.share_encoder_decoder_embeddings):
        raise ConfigError(
            "with the quirk works-on-features it has no token embeddings: none can be tied or shared, and nothing "
            "can be trained on token ids; leave the quirk out for that"
        )
    backends = ("sdpa", "eager") if config.has_quirk("decoder-sees-the-future") else BACKENDS
    return Transformer(
        encoder_layer=OdomEncoderLayer,
        decoder_layer=OdomDecoderLayer,
        embedding=NoVocabulary if works_on_features else TokenEmbedding,
        position=OdomPosition if config.position == "sinusoidal" else None,
        output_size=hidden_size if works_on_features else vocabulary_size,
        attention_mask=no_mask if config.has_quirk("padding-is-attended") else None,
        supports_unpadding=not config.quirks,
        backends=("eager",) if config.has_quirk("softmax-over-the-batch") else backends,
    )
