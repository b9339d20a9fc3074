"""`Transformer`: the classes and functions that a variant's stacks are assembled from, returned by its builder."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from zoo.base.errors import ConfigError, InputError
from zoo.fast.attention import BACKENDS
from zoo.fast.chunked_loss import IGNORED
from zoo.registry import VARIANTS

from .choices import Pooling
from .configuration import ZooConfig
from .embedding import Position, TokenEmbedding
from .layers import decoder_layer, encoder_layer
from .parts import ATTENTIONS, PART_FIELDS, POSITIONS

__all__ = ["BACKENDS", "Transformer", "shift_tokens_right", "transformer_of", "vocabulary_size"]

LayerBuilder = Callable[[ZooConfig, int], nn.Module]
"""Builds one layer from the stack's configuration and the layer's place."""


def shift_tokens_right(input_ids: Tensor | None, labels: Tensor | None, config: ZooConfig) -> Tensor:
    """The usual decoder inputs: the start token, then every label (or source token) but the last."""
    targets = input_ids if labels is None else labels
    if targets is None:
        raise InputError("nothing to decode: give decoder_input_ids, decoder_inputs_embeds or labels")
    start, padding = config.decoder_start_token_id, config.decoder_pad_token_id
    if padding is None:
        padding = config.pad_token_id
    if start is None or padding is None:
        field = "decoder_start_token_id" if start is None else "pad_token_id"
        raise ConfigError(f"{field} is None, but decoder inputs are made with it: set it, or pass them")
    shifted = targets.roll(1, dims=-1)
    shifted[..., 0] = start
    return shifted.masked_fill(shifted == IGNORED, padding)


def vocabulary_size(config: ZooConfig) -> int:
    """The usual number of outputs: one per token id, of the target vocabulary if it has its own."""
    return config.decoder_vocab_size if config.stack == "encoder-decoder" else config.vocab_size


def pool_first(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The vector of the first real token (BERT's [CLS]). *Shape:* (batch_size, hidden_size)."""
    if attention_mask is None:
        return hidden_states[:, 0]
    first = attention_mask.long().argmax(dim=1)
    return hidden_states[torch.arange(hidden_states.shape[0], device=hidden_states.device), first]


def pool_last(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The last real token's vector, with padding on either side. Arguments as for [`pool_first`][]."""
    if attention_mask is None:
        return hidden_states[:, -1]
    return pool_first(hidden_states, attention_mask.long().cumsum(dim=1))  # largest from the last real token on


def pool_mean(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The mean over real tokens. Arguments as for [`pool_first`][]."""
    if attention_mask is None:
        return hidden_states.mean(dim=1)
    weights = attention_mask.float()  # in half precision the sum of long sequences is infinite
    total = (hidden_states * weights[..., None]).sum(dim=1)
    return (total / weights.sum(dim=1, keepdim=True).clamp(min=1)).to(hidden_states.dtype)


def pool_max(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The elementwise maximum over real tokens, zero without any. Arguments as for [`pool_first`][]."""
    if attention_mask is None:
        return hidden_states.amax(dim=1)
    is_padding = attention_mask[..., None] == 0
    lowest = torch.finfo(hidden_states.dtype).min
    return hidden_states.masked_fill(is_padding, lowest).amax(dim=1).masked_fill(is_padding.all(dim=1), 0.0)


POOLERS = {Pooling.CLS: pool_first, Pooling.LAST: pool_last, Pooling.MEAN: pool_mean, Pooling.MAX: pool_max}
"""The function of every pooling."""


@dataclass(frozen=True)
class Transformer:
    """The blueprint of a variant: every field is the usual part unless the builder replaces it.

    Differences of variants are data in their configuration wherever possible; a builder replaces a part only where
    it can't, with a small subclass in the variant's own file.

    Args:
        encoder_layer: Builds a layer of an encoder.
        decoder_layer: Builds a layer of a decoder, with cross attention if the configuration has it.
        embedding: Builds the token embedding from a number of ids and the configuration.
        position: Builds the position encoding of a stack; by default the part that the configuration names.
        output_size: Computes the output width of a language model's head; by default one score per token id.
        head: Builds the output projection of a language model, called as `torch.nn.Linear` is.
        pooler: Pools token vectors under a mask, (batch_size, seq_len) or None; by default by the configuration.
        decoder_inputs: Makes decoder input ids, when none are given, from source ids (or None) and labels (or None); by
            default the labels, or without labels the source, shifted to the right.
        attention_mask: Makes the padding mask from the given one (or None) and the token ids (or None); by default the
            given one.
        backends: Attention backends that all replaced parts run on.
        supports_unpadding: Whether only attention looks beyond one token or at a token's place in the batch, so that
            padding may be taken out before the layers; by default if neither layers nor masks are replaced.
    """

    encoder_layer: LayerBuilder = encoder_layer
    decoder_layer: LayerBuilder = decoder_layer
    embedding: Callable[[int, ZooConfig], nn.Module] = TokenEmbedding
    position: Callable[[ZooConfig], Position] | None = None
    output_size: Callable[[ZooConfig], int] = vocabulary_size
    head: Callable[..., nn.Linear] = nn.Linear
    pooler: Callable[[Tensor, Tensor | None], Tensor] | None = None
    decoder_inputs: Callable[[Tensor | None, Tensor | None, ZooConfig], Tensor] = shift_tokens_right
    attention_mask: Callable[[Any, Tensor | None, ZooConfig], Any] | None = None
    backends: tuple[str, ...] = BACKENDS
    supports_unpadding: bool | None = field(default=None, compare=False)  # changes speed, not results

    def can_unpad(self, config: ZooConfig) -> bool:
        """Whether a stack may run without padding: by `supports_unpadding`, if its parts are the library's own."""
        built_in = all(registry.entry(getattr(config, name)).origin.built_in for name, registry in PART_FIELDS.items())
        if not (built_in and ATTENTIONS.get(config.attention).supports_unpadding and config.mixer_layer_type is None):
            return False
        usual = (self.encoder_layer, self.decoder_layer, self.attention_mask) == (encoder_layer, decoder_layer, None)
        return usual if self.supports_unpadding is None else self.supports_unpadding

    def build_position(self, config: ZooConfig) -> Position:
        return (self.position or POSITIONS.get(config.position))(config)

    def pool(self, hidden_states: Tensor, attention_mask: Tensor | None, config: ZooConfig) -> Tensor:
        """Pool token vectors, (batch_size, seq_len, hidden_size), into one per sequence, (batch_size, hidden_size)."""
        pooler = self.pooler or POOLERS[Pooling(config.classifier_pooling)]
        return pooler(hidden_states, attention_mask)


def build_by_settings(config: ZooConfig) -> Transformer:
    """The builder of variants that settings describe: the usual part in every place."""
    return Transformer()


def transformer_of(config: ZooConfig) -> Transformer:
    """The blueprint of the variant that a configuration names."""
    return VARIANTS.get(config.variant).builder(config)
