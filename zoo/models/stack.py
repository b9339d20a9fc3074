"""What encoder and decoder have in common."""

import copy
from itertools import cycle
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.utils import logging

from zoo.fast.dropout import Dropout
from zoo.fast.growing_cache import self_attention_cache
from zoo.fast.idle import through
from zoo.fast.unpadding import Unpadding, find_unpaddings
from zoo.fast.watching import are_untouched, kinds_of

from .configuration import ZooConfig
from .masks import position_biases
from .norms import build_norm
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
        self.dropout = Dropout(config.dropout)
        distinct_layers = 1 if config.share_layers else config.num_hidden_layers
        self.layers = nn.ModuleList([build_layer(config, layer_idx) for layer_idx in range(distinct_layers)])
        self.norm = build_norm(config) if config.final_norm else nn.Identity()
        self._no_split_modules = {type(layer).__name__ for layer in self.layers}
        self.can_unpad = self.transformer.can_unpad(config)
        self.built_of = kinds_of(self.unpadded_modules)
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
        unpadding: Unpadding | None = None,
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
            unpadding: Where the tokens are, if the layers are to run without padding.
            kwargs: Passed on to the layers.

        Returns:
            *Shape:* (batch_size, seq_len, hidden_size)
        """
        cache = None if past_key_values is None else self_attention_cache(past_key_values)
        biases = position_biases(self.config, self.position, inputs_embeds, cache)
        hidden_states = self.position.embed(inputs_embeds, position_ids)
        hidden_states = through(self.dropout, through(self.embedding_norm, hidden_states))
        if unpadding is not None:
            hidden_states = unpadding.unpad(hidden_states)
            position_ids = unpadding.unpad(position_ids)
        position_embeddings = self.position.rotation(hidden_states, position_ids)
        for step, (layer, layer_type) in enumerate(zip(cycle(self.layers), self.config.types_of_layers())):
            hidden_states = layer(
                hidden_states,
                masks[layer_type],
                biases[layer_type],
                encoder_hidden_states,
                encoder_attention_mask,
                position_embeddings=position_embeddings,
                past_key_values=past_key_values,
                position_ids=position_ids,
                step=step,
                **kwargs,
            )
        hidden_states = through(self.norm, hidden_states)
        return hidden_states if unpadding is None else unpadding.pad(hidden_states)

    def unpaddings(
        self,
        config: ZooConfig,
        *sequences: tuple[Any, torch.Tensor | None],
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Unpadding | None, ...]:
        """Find out where tokens are, if the layers are to run without padding in this call.

        Args:
            config: The configuration of this call.
            sequences: As for [`zoo.fast.unpadding.find_unpaddings`][].
            output_hidden_states: Whether the caller wants to see what passes between the layers, with its padding.
            kwargs: What else the call was given.

        Returns:
            An unpadding for each of the sequences, or None for all: also where somebody has hooks on what would run
            without padding, or has replaced parts of it.
        """
        records = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        found: tuple[Unpadding | None, ...] = (None,) * len(sequences)
        if self.can_unpad and not records:
            found = find_unpaddings(config, *sequences)
        if any(found) and not are_untouched(self.unpadded_modules, self.built_of):
            return (None,) * len(sequences)
        return found

    @property
    def unpadded_modules(self) -> tuple[nn.Module, nn.Module]:
        """What may run without padding: the layers and the norm behind them."""
        return self.layers, self.norm


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
