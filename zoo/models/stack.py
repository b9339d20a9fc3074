"""Stacks: what embeds tokens, applies layer after layer, and normalises; the encoder and the decoder."""

from itertools import cycle
from typing import Any, ClassVar

from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPastAndCrossAttentions
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from zoo.base.errors import ConfigError
from zoo.fast.attention import config_with_weights
from zoo.fast.modules import Dropout, Identity
from zoo.fast.unpad_layers import run_without_padding

from .attention import Attention
from .configuration import ZooConfig
from .context import (
    Context,
    EarlierLayers,
    cache_of_either_name,
    check_boundaries,
    check_distances,
    check_positions,
    new_cache,
    packs_documents,
    position_biases,
    prepare_cache,
    self_attention_masks,
)
from .embedding import TokenTypeEmbedding
from .feed_forwards.routing import Router
from .layers import TransformerLayer
from .mixers.base import refuse_layers_without_mixer
from .norms import build_norm
from .parts import RESIDUALS
from .pretrained import CallOptions, ZooModel
from .transformer import transformer_of


class ZooStack(ZooModel):
    """Base of encoder and decoder: embeddings, layers, final norm."""

    input_grows: ClassVar[dict[str, bool]] = {"embedding_projection.weight": False}

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.transformer = transformer_of(config)
        embeds = config.embedding_config()
        self.embed_tokens = self.transformer.embedding(config.vocab_size, embeds)
        self.position = self.transformer.build_position(embeds)
        self.embedding_norm = build_norm(embeds) if config.embedding_norm else Identity()
        self.dropout = Dropout(config.dropout)
        width = config.embedding_size
        self.embedding_projection = Identity() if width is None else nn.Linear(width, config.hidden_size)
        self.layer_types = config.types_of_layers()
        self.placed_types = config.placed_types_of_layers()
        self.windows = {**dict.fromkeys(self.layer_types), "sliding_attention": config.sliding_window}
        build_layer = self.transformer.decoder_layer if config.is_decoder else self.transformer.encoder_layer
        distinct_layers = range(1 if config.share_layers else config.num_hidden_layers)
        self.layers = nn.ModuleList(build_layer(config, layer_idx) for layer_idx in distinct_layers)
        if config.mixer_layer_type is not None:
            refuse_layers_without_mixer(self.layers, config)
        self.stream = RESIDUALS.get(config.residual).build_stream(config)
        self.norm = build_norm(config) if config.final_norm else Identity()
        self._no_split_modules = {type(layer).__name__ for layer in self.layers}
        self.can_unpad = self.transformer.can_unpad(config)
        parts = (self.embedding_projection, self.layers, self.norm)
        self.built_of = frozenset(type(module) for part in parts for module in part.modules())
        self.gradient_checkpointing = False

    @property
    def _tied_weights_keys(self) -> dict[str, str]:
        """Parameters that a variant's layers hold under several names."""
        first: dict[int, str] = {}
        names = ((name, id(parameter)) for name, parameter in self.named_parameters(remove_duplicate=False))
        return {name: first[identity] for name, identity in names if first.setdefault(identity, name) != name}

    def padding_mask(self, attention_mask: Any, input_ids: Tensor | None) -> Any:
        """The padding mask to use, by the variant's rule: the given one if it has none."""
        rule = self.transformer.attention_mask
        return attention_mask if rule is None else rule(attention_mask, input_ids, self.config)

    def token_embeddings(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """Embeddings of ids, unless given, (batch_size, seq_len, embedding_size); ValueError for both or neither."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        return self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds

    def run(self, inputs_embeds: Tensor, context: Context, **kwargs: Any) -> Tensor:
        """Place tokens, embed their positions, and run the layers: (batch_size, seq_len, hidden_size)."""
        wants_weights = kwargs.get("output_attentions")
        wants_weights = self.config.output_attentions if wants_weights is None else wants_weights
        config = config_with_weights(self.config) if wants_weights else self.config
        if kwargs.get("cu_seq_lens_q") is not None and "cache" not in kwargs:  # attention to pages reads them
            check_boundaries(config, inputs_embeds, context, kwargs["cu_seq_lens_q"])
        context.place(inputs_embeds, self.position, pages="cache" in kwargs)
        if self.position.has_bias:
            check_distances(context, self.layer_types, self.config.is_decoder)
            context.biases = position_biases(self.placed_types, self.position, inputs_embeds, context.cache)
        hidden_states = self.dropout(self.embedding_norm(self.position.embed(inputs_embeds, context.position_ids)))
        if self.can_unpad and context.past_key_values is None:
            return run_without_padding(self, config, hidden_states, context, **kwargs)
        return self.run_layers(config, hidden_states, context, **kwargs)

    def run_layers(self, config: ZooConfig, hidden_states: Tensor, context: Context, **kwargs: Any) -> Tensor:
        """Bring the embeddings to the width of the stream, apply every layer, then the final norm."""
        # Made once for all layers: masks by layer type, what cross attention reads, rotations.
        masks = self_attention_masks(config, hidden_states, context, self.layer_types)
        source = context.source(config, hidden_states) if context.encoder_hidden_states is not None else ()
        rotates, placed_types = self.position.rotates, filter(None, self.placed_types)
        rotations: Any = self.position.rotations(hidden_states, context.position_ids, placed_types) if rotates else {}
        kwargs |= {"past_key_values": context.past_key_values, "attn_implementation": config._attn_implementation}
        mask, is_token = context.attention_mask, context.is_token
        is_token = mask[:, -hidden_states.shape[1] :] if isinstance(mask, Tensor) and mask.ndim == 2 else is_token
        kwargs |= {"position_ids": context.position_ids, "earlier": EarlierLayers(context.token_ids, is_token)}
        hidden_states = self.stream.open(self.embedding_projection(hidden_states))
        layer_types = self.layer_types[: self.config.num_hidden_layers]  # generation lowers it for an early exit
        for step, (layer, kind, placed) in enumerate(zip(cycle(self.layers), layer_types, self.placed_types)):
            kwargs |= {"step": step, "position_embeddings": rotations.get(placed), "sliding_window": self.windows[kind]}
            hidden_states = layer(hidden_states, masks[kind], context.biases.get(placed), *source, **kwargs)
        return self.norm(self.stream(hidden_states))


class ZooEncoder(ZooStack):
    """A stack that sees its whole input in both directions.

    Raises:
        ConfigError: When the configuration describes a decoder.
    """

    _can_record_outputs = {
        "hidden_states": TransformerLayer,
        "attentions": OutputRecorder(Attention, index=1),
        "router_logits": OutputRecorder(Router, index=0),
    }

    def __init__(self, config: ZooConfig) -> None:
        if config.is_decoder:
            raise ConfigError(
                "this configuration describes a decoder, an encoder was asked for; "
                f"zoo.config({config.variant!r}, task='masked-lm') describes one"
            )
        super().__init__(config)
        num_types = config.type_vocab_size
        self.token_types = TokenTypeEmbedding(num_types, config.embedding_config()) if num_types is not None else None
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: CallOptions,
    ) -> BaseModelOutput:
        """Encode a batch of sequences.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens, 0 for padding; of the prefix, too. *Shape:* (batch_size, key_len)
            position_ids: Positions, by default counted on from the prefix; a finished mask of queries and keys does not
                show padding, so places are counted. They separate no documents. *Shape:* (batch_size, seq_len)
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, embedding_size)
            token_type_ids: Types of tokens, by default 0; without effect in a model that has no types.
                *Shape:* (batch_size, seq_len)
            past_key_values: Keys and values of a prefix that every position sees (prefix-tuning), extended in place.
            kwargs: `cache` (`past_key_values` by the name of transformers 5.24), `output_attentions`,
                `output_hidden_states`, `return_dict`, and what attention backends take.

        Returns:
            `last_hidden_state`, *Shape:* (batch_size, seq_len, hidden_size), and what was asked for.

        Raises:
            TokenIdError: When an id is outside of the vocabulary.
            SequenceTooLongError: When the input is longer than the position table.
            InputError: When the mask leaves out the prefix, or positions are not one for each token.
        """
        past_key_values = cache_of_either_name(past_key_values, kwargs) if "cache" in kwargs else past_key_values
        if self.transformer.attention_mask is not None:
            attention_mask = self.padding_mask(attention_mask, input_ids)
        inputs_embeds = self.token_embeddings(input_ids, inputs_embeds)
        if position_ids is not None:
            check_positions(position_ids, inputs_embeds)
        if self.token_types is not None:
            inputs_embeds = self.token_types(inputs_embeds, token_type_ids)
        tokens = {"token_ids": input_ids, "is_token": kwargs.pop("is_token", None)}
        context = Context(attention_mask, position_ids, past_key_values, **tokens)
        return BaseModelOutput(last_hidden_state=self.run(inputs_embeds, context, **kwargs))


class ZooDecoder(ZooStack):
    """A stack in which every position sees only itself and earlier ones, and the output of an encoder, if any.

    Raises:
        ConfigError: When the configuration describes an encoder.
    """

    _can_record_outputs = {
        "hidden_states": TransformerLayer,
        "attentions": OutputRecorder(Attention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(Attention, index=1, layer_name="cross_attn"),
        "router_logits": OutputRecorder(Router, index=0),
    }

    def __init__(self, config: ZooConfig) -> None:
        if not config.is_decoder:
            raise ConfigError(
                f"this configuration describes an {config.stack}, a decoder was asked for; "
                f"zoo.config({config.variant!r}, task='causal-lm') describes one"
            )
        super().__init__(config)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Any = None,
        use_cache: bool | None = None,
        **kwargs: CallOptions,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode a batch of sequences, or continue them from a cache.

        Args:
            input_ids: Token ids. *Shape:* (batch_size, seq_len)
            attention_mask: 1 for real tokens, cached ones included. *Shape:* (batch_size, key_len)
            position_ids: Positions, by default counted on from the cache; a finished mask of queries and keys does not
                show padding, so places are counted. Without a mask, a document begins where they do not count on.
                *Shape:* (batch_size, seq_len)
            past_key_values: Keys and values of earlier positions, extended in place.
            inputs_embeds: Instead of input_ids. *Shape:* (batch_size, seq_len, embedding_size)
            encoder_hidden_states: Input of cross attention. *Shape:* (batch_size, source_len, hidden_size)
            encoder_attention_mask: 1 for real source tokens. *Shape:* (batch_size, source_len)
            use_cache: Whether to return keys and values; a new cache is made if none is given, and none for packed
                documents, as it does not keep where they begin.
            kwargs: `cache` (`past_key_values` by the name of transformers 5.24), `output_attentions`,
                `output_hidden_states`, `return_dict`, and what attention backends take.

        Returns:
            `last_hidden_state`, *Shape:* (batch_size, seq_len, hidden_size), the cache, and what was asked for. Hidden
            states between the layers are as the residual part makes them, with several streams (batch_size, seq_len,
            num_streams, hidden_size).

        Raises:
            TokenIdError: When an id is outside of the vocabulary.
            SequenceTooLongError: When the sequence is longer than the position table.
            InputError: When the mask leaves out cached positions, documents are packed where a cache is given, or
                positions are not one for each token.
        """
        past_key_values = cache_of_either_name(past_key_values, kwargs) if "cache" in kwargs else past_key_values
        if self.transformer.attention_mask is not None:
            attention_mask = self.padding_mask(attention_mask, input_ids)
        inputs_embeds = self.token_embeddings(input_ids, inputs_embeds)
        if position_ids is not None:
            check_positions(position_ids, inputs_embeds)
        looks = attention_mask is None and position_ids is not None
        packs = looks and packs_documents(position_ids, past_key_values, use_cache)
        if past_key_values is not None:
            prepare_cache(past_key_values, 0 if encoder_hidden_states is None else encoder_hidden_states.shape[1])
        elif use_cache and not packs:
            past_key_values = new_cache(self.config, has_source=encoder_hidden_states is not None)
        source, tokens = (encoder_hidden_states, encoder_attention_mask), (input_ids, kwargs.pop("is_token", None))
        context = Context(attention_mask, position_ids, past_key_values, *source, *tokens)
        return BaseModelOutputWithPastAndCrossAttentions(self.run(inputs_embeds, context, **kwargs), past_key_values)


def stacks_of(model: nn.Module) -> dict[str, ZooStack]:
    """Find the stacks of a model by kind: "encoder", "decoder", or both."""
    stacks = [part for part in model.modules() if isinstance(part, ZooStack)]
    return {"decoder" if stack.config.is_decoder else "encoder": stack for stack in stacks}
