"""The encoder and the decoder stack."""

import copy
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.utils import logging
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from zoo.errors import ConfigError

from .attention import Attention, self_attention_cache
from .configuration import ZooConfig
from .layers import TransformerLayer
from .masks import check_mask_length, cross_attention_mask, position_biases, self_attention_masks
from .norms import build_norm
from .options import CallOptions
from .packing import Packing, find_packings
from .pretrained import ZooModel
from .transformer import BACKENDS, LayerBuilder, transformer_of

logger = logging.get_logger(__name__)


class ZooStack(ZooModel):
    """What encoder and decoder have in common: embeddings, layers, final norm.

    Args:
        config: The configuration of this stack.
        build_layer: Builds one layer.
    """

    def __init__(self, config: ZooConfig, build_layer: LayerBuilder) -> None:
        super().__init__(config)
        self.transformer = transformer_of(config)
        self.embed_tokens = self.transformer.embedding(config.vocab_size, config)
        self.position = self.transformer.build_position(config)
        self.embedding_norm = build_embedding_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        distinct_layers = 1 if config.share_layers else config.num_hidden_layers
        self.layers = nn.ModuleList([build_layer(config, layer_idx) for layer_idx in range(distinct_layers)])
        self.norm = build_norm(config) if config.final_norm else nn.Identity()
        self._no_split_modules = {type(layer).__name__ for layer in self.layers}
        self.gradient_checkpointing = False

    def padding_mask(self, attention_mask: Any, input_ids: torch.Tensor | None) -> Any:
        """The padding mask to use, by the variant's rule.

        Args:
            attention_mask: The given mask.
            input_ids: *Shape:* (batch_size, seq_len)

        Returns:
            A mask or None.
        """
        return self.transformer.attention_mask(attention_mask, input_ids, self.config)

    def tied_weights(self) -> dict[str, str]:
        """Parameters that a variant's layers hold under several names.

        Returns:
            {every further name: the first name}
        """
        first: dict[int, str] = {}
        names = ((name, id(parameter)) for name, parameter in self.named_parameters(remove_duplicate=False))
        return {name: first[identity] for name, identity in names if first.setdefault(identity, name) != name}

    def token_embeddings(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Look ids up unless their embeddings are given.

        Args:
            input_ids: *Shape:* (batch_size, seq_len)
            inputs_embeds: *Shape:* (batch_size, seq_len, hidden_size)

        Returns:
            *Shape:* (batch_size, seq_len, hidden_size)

        Raises:
            ValueError: When both or neither are given.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        return self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds

    def check_length(self, length: int, position_ids: torch.Tensor | None) -> None:
        """Refuse positions that the encoding cannot place.

        Args:
            length: Number of positions, cached ones included.
            position_ids: The given positions, if any; of packed or padded sequences they are fewer.

        Raises:
            SequenceTooLongError: When there are too many.
        """
        limit = self.position.max_length
        if position_ids is not None and limit is not None and length > limit:
            if torch.compiler.is_compiling():
                return
            length = int(position_ids.max()) + 1
        self.position.check_length(length)

    def config_of_call(self, output_attentions: bool | None) -> ZooConfig:
        """The configuration of one call: with eager attention where weights are asked for that the backend hasn't got.

        Args:
            output_attentions: Whether the caller wants attention weights, None for what the configuration says.

        Returns:
            The stack's own configuration, or a copy of it.
        """
        wanted = self.config.output_attentions if output_attentions is None else output_attentions
        backend = self.config._attn_implementation
        if not wanted or backend == "eager" or backend not in BACKENDS:
            return self.config
        if not torch.compiler.is_compiling():
            logger.warning_once(
                f"{backend} returns no attention weights: calls that ask for them run on eager attention"
            )
        config = copy.copy(self.config)
        config._attn_implementation_internal = "eager"
        return config

    def run_layers(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        masks: dict[str, Any],
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: Any = None,
        past_key_values: Cache | None = None,
        packing: Packing | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Embed positions, apply every layer, normalise.

        Args:
            inputs_embeds: *Shape:* (batch_size, seq_len, hidden_size)
            position_ids: *Shape:* (batch_size or 1, seq_len)
            masks: A mask for every layer type.
            encoder_hidden_states: What cross attention reads. *Shape:* (batch_size, source_len, hidden_size)
            encoder_attention_mask: Mask of cross attention.
            past_key_values: Keys and values of earlier positions.
            packing: Where the tokens are, if the layers are to run without padding.
            kwargs: Passed on to the layers.

        Returns:
            *Shape:* (batch_size, seq_len, hidden_size)
        """
        cache = None if past_key_values is None else self_attention_cache(past_key_values)
        biases = position_biases(self.config, self.position, inputs_embeds, cache)
        hidden_states = self.dropout(self.embedding_norm(self.position.embed(inputs_embeds, position_ids)))
        if packing is not None:
            hidden_states = packing.pack(hidden_states)
            position_ids = packing.pack(position_ids)
        position_embeddings = self.position.rotation(hidden_states, position_ids)
        for step in range(self.config.num_hidden_layers):
            layer_type = self.config.type_of_layer(step)
            hidden_states = self.layers[step % len(self.layers)](
                hidden_states,
                masks[layer_type],
                biases[layer_type],
                encoder_hidden_states,
                encoder_attention_mask,
                position_embeddings=position_embeddings,
                past_key_values=past_key_values,
                step=step,
                **kwargs,
            )
        hidden_states = self.norm(hidden_states)
        return hidden_states if packing is None else packing.unpack(hidden_states)

    def packings(
        self,
        config: ZooConfig,
        *sequences: tuple[Any, torch.Tensor | None],
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Packing | None, ...]:
        """Find out where tokens are, if the layers are to run without padding in this call.

        Args:
            config: The configuration of this call.
            sequences: As for [`zoo.models.packing.find_packings`][].
            output_hidden_states: Whether the caller wants to see what passes between the layers, with its padding.
            kwargs: What else the call was given.

        Returns:
            A packing for each of the sequences, or None for all.
        """
        records = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if records or not self.transformer.can_pack():
            return (None,) * len(sequences)
        return find_packings(config, *sequences)


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
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: Any = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: CallOptions,
    ) -> BaseModelOutput:
        """Encode a batch of sequences.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens, 0 for padding. *Shape:* (batch_size, seq_len)
            position_ids: Positions, by default 0, 1, ... *Shape:* (batch_size, seq_len)
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, hidden_size)
            kwargs: `output_attentions`, `output_hidden_states`, `return_dict`, and what attention backends take.

        Returns:
            `last_hidden_state`, *Shape:* (batch_size, seq_len, hidden_size), and what was asked for.

        Raises:
            TokenIdError: When an id is outside of the vocabulary.
            SequenceTooLongError: When the input is longer than the position table.
        """
        attention_mask = self.padding_mask(attention_mask, input_ids)
        inputs_embeds = self.token_embeddings(input_ids, inputs_embeds)
        self.check_length(inputs_embeds.shape[1], position_ids)
        if position_ids is None:
            position_ids = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device)[None]
        config = self.config_of_call(kwargs.get("output_attentions"))
        (packing,) = self.packings(config, (attention_mask, inputs_embeds), **kwargs)
        masks = self_attention_masks(config, inputs_embeds, attention_mask, packing=packing)
        hidden_states = self.run_layers(
            inputs_embeds,
            position_ids,
            masks,
            packing=packing,
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
        attention_mask = self.padding_mask(attention_mask, input_ids)
        inputs_embeds = self.token_embeddings(input_ids, inputs_embeds)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
            if encoder_hidden_states is not None:
                past_key_values = EncoderDecoderCache(past_key_values, DynamicCache())
        cache = None if past_key_values is None else self_attention_cache(past_key_values)

        seen = 0 if cache is None else cache.get_seq_length()
        if isinstance(seen, int):
            self.check_length(seen + inputs_embeds.shape[1], position_ids)
            check_mask_length(attention_mask, seen + inputs_embeds.shape[1])
        if position_ids is None:
            position_ids = (torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + seen)[None]
        config = self.config_of_call(kwargs.get("output_attentions"))
        packing = encoder_packing = None
        if cache is None:
            source = (encoder_attention_mask, encoder_hidden_states)
            packing, encoder_packing = self.packings(config, (attention_mask, inputs_embeds), source, **kwargs)
        masks = self_attention_masks(config, inputs_embeds, attention_mask, cache, position_ids, packing)
        if encoder_hidden_states is not None:
            encoder_attention_mask = cross_attention_mask(
                config, inputs_embeds, encoder_attention_mask, encoder_hidden_states, packing, encoder_packing
            )
            if encoder_packing is not None:
                encoder_hidden_states = encoder_packing.pack(encoder_hidden_states)

        hidden_states = self.run_layers(
            inputs_embeds,
            position_ids,
            masks,
            encoder_hidden_states,
            encoder_attention_mask,
            past_key_values,
            packing,
            attn_implementation=config._attn_implementation,
            **kwargs,
        )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=hidden_states, past_key_values=past_key_values
        )


def build_embedding_norm(config: ZooConfig) -> nn.Module:
    """Build the norm on the embeddings, with its own epsilon, or the identity.

    Args:
        config: Supplies `embedding_norm` and `embedding_norm_eps`.

    Returns:
        A module mapping (batch_size, seq_len, hidden_size) to the same shape.
    """
    if not config.embedding_norm:
        return nn.Identity()
    own = copy.copy(config)
    own.layer_norm_eps = config.embedding_norm_eps
    return build_norm(own)
