"""The encoder and the decoder stack."""

from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from zoo.errors import ConfigError
from zoo.fast.growing_cache import self_attention_cache

from .attention import Attention
from .caches import new_cache, prepare_cache
from .configuration import ZooConfig
from .embedding import TokenTypeEmbedding
from .layers import TransformerLayer
from .masks import are_packed, check_mask_length, cross_attention_mask, self_attention_masks
from .options import CallOptions
from .stack import ZooStack
from .transformer import transformer_of


class ZooEncoder(ZooStack):
    """A stack that sees its whole input in both directions.

    Args:
        config: A configuration whose only stack is an encoder, or of an encoder-decoder.

    Raises:
        ConfigError: When the configuration describes a decoder.
    """

    _can_record_outputs = {"hidden_states": TransformerLayer, "attentions": OutputRecorder(Attention, index=1)}

    def __init__(self, config: ZooConfig) -> None:
        if config.is_decoder:
            raise ConfigError(
                "this configuration describes a decoder, an encoder was asked for; "
                f"zoo.config({config.variant!r}, task='masked-lm') describes one"
            )
        super().__init__(config, transformer_of(config).encoder_layer)
        num_types = config.type_vocab_size
        self.token_types = TokenTypeEmbedding(num_types, config) if num_types is not None else None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: Any = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: CallOptions,
    ) -> BaseModelOutput:
        """Encode a batch of sequences.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens, 0 for padding; of the prefix, too. *Shape:* (batch_size, key_len)
            position_ids: Positions, by default counted on from the prefix. *Shape:* (batch_size, seq_len)
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, hidden_size)
            token_type_ids: Types of tokens, by default 0; without effect in a model that has no types.
                *Shape:* (batch_size, seq_len)
            past_key_values: Keys and values of a prefix that every position sees (prefix-tuning), extended in place.
            kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and what attention backends take.

        Returns:
            `last_hidden_state`, *Shape:* (batch_size, seq_len, hidden_size), and what was asked for.

        Raises:
            TokenIdError: When an id is outside of the vocabulary.
            SequenceTooLongError: When the input is longer than the position table.
            InputError: When the mask leaves out the prefix.
        """
        has_mask = attention_mask is not None
        attention_mask = self.padding_mask(attention_mask, input_ids)
        inputs_embeds = self.token_embeddings(input_ids, inputs_embeds)
        if self.token_types is not None:
            inputs_embeds = self.token_types(inputs_embeds, token_type_ids)
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        self.check_length(seen + inputs_embeds.shape[1], position_ids)
        if position_ids is None:
            position_ids = self.position.count(inputs_embeds, attention_mask, seen)
        config = self.config_of_call(kwargs.get("output_attentions"))
        unpadding = None
        if past_key_values is None:
            (unpadding,) = self.unpaddings(config, (attention_mask, inputs_embeds), **kwargs)
        else:
            check_mask_length(attention_mask, seen + inputs_embeds.shape[1], is_given=has_mask)
        masks = self_attention_masks(config, inputs_embeds, attention_mask, past_key_values, unpadding=unpadding)
        hidden_states = self.run_layers(
            inputs_embeds,
            position_ids,
            masks,
            past_key_values=past_key_values,
            unpadding=unpadding,
            attn_implementation=config._attn_implementation,
            **kwargs,
        )
        return BaseModelOutput(last_hidden_state=hidden_states)


class ZooDecoder(ZooStack):
    """A stack in which every position sees only itself and earlier ones, and an encoder's output if there is one.

    Args:
        config: A configuration whose only stack is a decoder, or the decoder's view of an encoder-decoder.

    Raises:
        ConfigError: When the configuration describes an encoder.
    """

    _can_record_outputs = {
        "hidden_states": TransformerLayer,
        "attentions": OutputRecorder(Attention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(Attention, index=1, layer_name="cross_attn"),
    }

    def __init__(self, config: ZooConfig) -> None:
        if not config.is_decoder:
            raise ConfigError(
                f"this configuration describes an {config.stack}, a decoder was asked for; "
                f"zoo.config({config.variant!r}, task='causal-lm') describes one"
            )
        super().__init__(config, transformer_of(config).decoder_layer)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: Any = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: Any = None,
        use_cache: bool | None = None,
        **kwargs: CallOptions,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode a batch of sequences, or continue them from a cache.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens, cached ones included. *Shape:* (batch_size, key_len)
            position_ids: Positions, by default counted on from the cache. *Shape:* (batch_size, seq_len)
            past_key_values: Keys and values of earlier positions, extended in place.
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, hidden_size)
            encoder_hidden_states: What cross attention reads. *Shape:* (batch_size, source_len, hidden_size)
            encoder_attention_mask: 1 for real source tokens. *Shape:* (batch_size, source_len)
            use_cache: Whether to return keys and values; a new cache is made if none is given.
            kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and what attention backends take.

        Returns:
            `last_hidden_state`, *Shape:* (batch_size, seq_len, hidden_size), the cache, and what was asked for.

        Raises:
            TokenIdError: When an id is outside of the vocabulary.
            SequenceTooLongError: When the sequence is longer than the position table.
        """
        has_mask = attention_mask is not None
        attention_mask = self.padding_mask(attention_mask, input_ids)
        inputs_embeds = self.token_embeddings(input_ids, inputs_embeds)
        if use_cache and past_key_values is None:
            past_key_values = new_cache(self.config, has_source=encoder_hidden_states is not None)
        if past_key_values is not None:
            prepare_cache(past_key_values, 0 if encoder_hidden_states is None else encoder_hidden_states.shape[1])
        cache = None if past_key_values is None else self_attention_cache(past_key_values)

        seen = 0 if cache is None else cache.get_seq_length()
        if not isinstance(seen, torch.Tensor):
            self.check_length(seen + inputs_embeds.shape[1], position_ids)
            check_mask_length(attention_mask, seen + inputs_embeds.shape[1], is_given=has_mask)
        packed = are_packed(attention_mask, position_ids)
        if position_ids is None:
            position_ids = self.position.count(inputs_embeds, attention_mask, seen)
        config = self.config_of_call(kwargs.get("output_attentions"))
        unpadding = encoder_unpadding = None
        if cache is None and not packed:
            source = (encoder_attention_mask, encoder_hidden_states)
            unpadding, encoder_unpadding = self.unpaddings(config, (attention_mask, inputs_embeds), source, **kwargs)
        masks = self_attention_masks(config, inputs_embeds, attention_mask, cache, position_ids, unpadding)
        if encoder_hidden_states is not None:
            encoder_attention_mask = cross_attention_mask(
                config, inputs_embeds, encoder_attention_mask, encoder_hidden_states, unpadding, encoder_unpadding
            )
            if encoder_unpadding is not None:
                encoder_hidden_states = encoder_unpadding.unpad(encoder_hidden_states)

        hidden_states = self.run_layers(
            inputs_embeds,
            position_ids,
            masks,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_values,
            unpadding,
            attn_implementation=config._attn_implementation,
            **kwargs,
        )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=hidden_states, past_key_values=past_key_values
        )
