"""The parts of a model that become graphs: of flat tensors, as ONNX wants them, with a cache of any length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from zoo.models import ZooPreTrainedModel

Pairs = list[tuple[Tensor, Tensor]]
"""Keys and values of every layer."""


def filled_cache(pairs: Pairs) -> DynamicCache:
    """A cache of given keys and values, of any length; sliding layers keep all keys, which masks hide."""
    cache = DynamicCache()
    for key, value in pairs:
        layer = DynamicLayer()
        layer.dtype, layer.device = key.dtype, key.device
        layer.keys, layer.values, layer.is_initialized = key, value, True
        cache.layers.append(layer)
    return cache


def content(cache: Any) -> tuple[Tensor, ...]:
    return tuple(tensor for layer in cache.layers for tensor in (layer.keys, layer.values))


class Part(nn.Module):
    """Base of the parts."""

    def __init__(self, model: ZooPreTrainedModel) -> None:
        super().__init__()
        self.model = model


class Whole(Part):
    """A model without a cache.

    Args:
        output: Its output: "logits" or "last_hidden_state".
        third: Its input after ids and mask: "decoder_input_ids" or "token_type_ids".
    """

    def __init__(self, model: ZooPreTrainedModel, output: str, third: str = "") -> None:
        super().__init__(model)
        self.output, self.third = output, third
        self.options = {} if model.config.stack == "encoder" else {"use_cache": False}

    def forward(self, input_ids: Tensor, attention_mask: Tensor, third: Tensor | None = None) -> Tensor:
        given = {} if third is None else {self.third: third}
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, **given, **self.options)
        return getattr(outputs, self.output)


class Causal(Part):
    """A causal language model with a cache."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor, past: Pairs
    ) -> tuple[Tensor, ...]:
        """Logits, then keys and values of all positions; the mask includes earlier ones."""
        cache = filled_cache(past)
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
        )
        return outputs.logits, *content(cache)


class Encoder(Part):
    """The encoder alone."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model.model.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Memory(Part):
    """The keys and values of the decoder's cross attention, computed from the encoder's output."""

    def forward(self, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Project.

        Args:
            encoder_hidden_states: *Shape:* (batch_size, source_len, hidden_size)
            encoder_attention_mask: *Shape:* (batch_size, source_len)

        Returns:
            Keys and values of every decoder layer that caches them.
        """
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        first = torch.zeros_like(encoder_attention_mask[:, :1])
        # A step of the decoder fills the cache by the variant's own rule; nothing else of it remains in the graph.
        self.model.model.decoder(
            input_ids=first,
            attention_mask=torch.ones_like(first),
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        return content(cache.cross_attention_cache)


class Encode(nn.Module):
    """The encoder, with the keys and values of the decoder's cross attention, computed from its output."""

    def __init__(self, model: ZooPreTrainedModel) -> None:
        super().__init__()
        self.encoder, self.memory = Encoder(model), Memory(model)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        encoded = self.encoder(input_ids, attention_mask)
        return encoded, *self.memory(encoded, attention_mask)


class Decode(Part):
    """The decoder with both caches."""

    def forward(
        self,
        input_ids: Tensor,
        encoder_attention_mask: Tensor,
        encoder_hidden_states: Tensor,
        decoder_attention_mask: Tensor,
        memory: Pairs,
        past: Pairs,
    ) -> tuple[Tensor, ...]:
        """Continue target sequences: logits, then keys and values of all target positions.

        Args:
            decoder_attention_mask: *Shape:* (batch_size, key_len), earlier positions included
            past: Keys and values of earlier target positions.
        """
        own, cross = filled_cache(past), filled_cache(memory)
        cache = EncoderDecoderCache(own, cross)
        cache.is_updated = dict.fromkeys(range(len(memory)), True)
        outputs = self.model(
            attention_mask=encoder_attention_mask,
            decoder_input_ids=input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
            past_key_values=cache,
            use_cache=True,
        )
        return outputs.logits, *content(cache.self_attention_cache)
