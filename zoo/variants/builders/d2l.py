"""The Transformer of the textbook "Dive into Deep Learning": a post-norm encoder-decoder without attention biases."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init

from zoo.models import INITIALIZERS, Attention, DecoderLayer, EncoderLayer, SinusoidalPosition, Transformer, ZooConfig
from zoo.models.attention import Mixed
from zoo.models.transformer import BACKENDS

TOKEN_BY_TOKEN = {"table-ends-at-1000", "unscaled-initialization"}
"""Quirks with which only attention looks beyond one token, so that padding may be taken out."""


class D2LEncoderLayer(EncoderLayer):
    """A post-norm layer with optional biases in attention; a decoder's never has them."""

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        if getattr(config, "encoder_attention_bias", False):
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                projection = getattr(self.self_attn, name)
                setattr(self.self_attn, name, nn.Linear(projection.in_features, projection.out_features))


class TrainingSeesThePast(Attention):
    """Self-attention that is causal in training mode only, and there counts keys from the start of the cache."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        if self.training:
            lowest = torch.finfo(query.dtype).min
            attention_mask = query.new_full((1, 1, query.shape[2], key.shape[2]), lowest).triu(1)
        elif attention_mask is not None:
            # The last query sees every key that is not masked for another reason than causality.
            attention_mask = attention_mask[:, :, -1:].expand(-1, -1, query.shape[2], -1)
        return super().attend(query, key, value, attention_mask, is_causal=False, **kwargs)


class D2LDecoderLayer(DecoderLayer):
    """A post-norm layer; with the quirk, its self-attention sees later tokens in evaluation mode."""

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        if config.has_quirk("evaluation-sees-the-future"):
            self.replace_attention(
                "self_attn", TrainingSeesThePast(config, layer_idx, is_causal=True), "masked-rows-uniform"
            )


class D2LPosition(SinusoidalPosition):
    """The paper's table; with the quirks, 1000 rows of it, and every call begins at its first row."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.restarts = config.has_quirk("every-step-is-position-zero")
        self.max_length = 1000 if config.has_quirk("table-ends-at-1000") else None

    def check(self, length: int, position_ids: Tensor | None = None) -> None:
        """Refuse long sequences; calls that restart at position 0 are measured one by one."""
        if not self.restarts:
            super().check(length, position_ids)

    def embed(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        if self.restarts:
            super().check(inputs_embeds.shape[1])
            position_ids = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device)[None]
        return super().embed(inputs_embeds, position_ids)


def d2l_initializer(module: nn.Module, config: ZooConfig) -> None:
    """Xavier-uniform linear weights, everything else as PyTorch does. Arguments as for the built-in schemes."""
    INITIALIZERS.get("torch")(module, config)
    if isinstance(module, nn.Linear):
        init.xavier_uniform_(module.weight)


def d2l_style(config: ZooConfig) -> Transformer:
    return Transformer(
        encoder_layer=D2LEncoderLayer,
        decoder_layer=D2LDecoderLayer,
        position=D2LPosition if config.position == "sinusoidal" else None,
        supports_unpadding=TOKEN_BY_TOKEN.issuperset(config.quirks),
        backends=("sdpa", "eager") if config.has_quirk("evaluation-sees-the-future") else BACKENDS,
    )
