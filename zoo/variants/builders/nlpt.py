"""The encoder of the book "Natural Language Processing with Transformers", chapter 3."""

from typing import Any

import torch
from torch import Tensor

from zoo.fast.attention_backends import added_mask
from zoo.fast.modules import Identity
from zoo.models import Attention, EncoderLayer, Transformer, ZooConfig
from zoo.models.attention import Mixed
from zoo.models.transformer import BACKENDS


class InfinitelyMaskedAttention(Attention):
    """Attention with masked scores of minus infinity, so that a row without any visible key becomes NaN."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any) -> Mixed:
        if attention_mask is not None:
            attention_mask = added_mask(attention_mask, query.dtype)
            hidden = attention_mask <= torch.finfo(attention_mask.dtype).min / 2
            attention_mask = attention_mask.masked_fill(hidden, -torch.inf)
        return super().attend(query, key, value, attention_mask, **kwargs)


class NlptEncoderLayer(EncoderLayer):
    """A pre-norm layer without dropout on its attention branch."""

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.self_attn_residual.dropout = Identity()
        if config.has_quirk("masked-rows-are-nan"):
            self.replace_attention("self_attn", InfinitelyMaskedAttention(config, layer_idx))


def no_mask(attention_mask: Any, input_ids: Tensor | None, config: ZooConfig) -> Any:
    """No padding mask, even if one is given, unless it masks query by query."""
    is_full = isinstance(attention_mask, dict) or (isinstance(attention_mask, Tensor) and attention_mask.ndim == 4)
    return attention_mask if is_full else None


def nlpt_encoder(config: ZooConfig) -> Transformer:
    return Transformer(
        encoder_layer=NlptEncoderLayer,
        attention_mask=no_mask if config.has_quirk("padding-is-attended") else None,
        supports_unpadding=not config.quirks,
        backends=("eager",) if config.has_quirk("masked-rows-are-nan") else BACKENDS,
    )
