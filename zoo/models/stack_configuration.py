"""Views of a configuration: which stacks it describes, one stack of two by itself, and the kind of every layer."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from .derived_defaults import repeat_pattern
from .fields import Fields
from .parts import ATTENTIONS, MIXERS
from .saved_configuration import SavedConfig

if TYPE_CHECKING:
    from typing_extensions import Self


class StackConfig(Fields, SavedConfig):
    """Properties of a configuration about stacks and their layers."""

    @property
    def stack(self) -> str:
        """Which stacks the model has: "encoder", "decoder" or "encoder-decoder"."""
        if self.is_encoder_decoder and not self.is_decoder:
            return "encoder-decoder"
        return "decoder" if self.is_decoder else "encoder"

    def window_of_layer(self, layer_idx: int) -> int | None:
        """The sliding window of one layer."""
        return self.sliding_window if self.types_of_layers()[layer_idx] == "sliding_attention" else None

    def types_of_layers(self) -> list[str]:
        """The kind of self-attention mask of every layer, in transformers' words."""
        types: list[str] | None = getattr(self, "layer_types", None)
        if types is not None:
            return types[: self.num_hidden_layers]  # generation lowers the number for an early exit
        return ["full_attention" if self.sliding_window is None else "sliding_attention"] * self.num_hidden_layers

    def validate_layer_type(self) -> None:
        """Leave names as they are, which are checked with all settings: transformers 5.17 gives some other ones."""

    @property
    def mixer_layer_type(self) -> str | None:
        """The type of the layers without attention, None where all have attention."""
        return MIXERS.get(self.mixer).layer_type

    @property
    def kv_sharing_modes(self) -> list[str | None] | None:
        """Which layers read keys and values that an earlier one keeps, by which transformers makes caches."""
        return ATTENTIONS.get(self.attention).kv_sharing_modes(self)

    def placed_types_of_layers(self) -> list[str | None]:
        """Which position terms every layer reads."""
        types, unplaced = self.types_of_layers(), self.mixer_layer_type
        return [
            None if nope or kind == unplaced else kind
            for kind, nope in zip(types, self.nope_layers or [False] * len(types), strict=False)
        ]

    @property
    def embedding_width(self) -> int:
        """Width of the vectors of tokens, of their types and of learned positions."""
        return self.embedding_size or self.hidden_size

    def embedding_config(self) -> Self:
        """The configuration of what embeds tokens."""
        embeds = copy.copy(self)
        embeds.hidden_size, embeds.layer_norm_eps = self.embedding_width, self.embedding_norm_eps
        return embeds

    def decoder_config(self) -> Self:
        """The configuration of the decoder stack of an encoder-decoder.

        Returns:
            A copy in which the plain fields describe the decoder.
        """
        decoder = copy.deepcopy(self)
        grouped = self.num_key_value_heads != self.num_attention_heads
        own_head_dim = self.head_dim * self.num_attention_heads != self.hidden_size
        decoder.vocab_size = self.vocab_size if self.share_encoder_decoder_embeddings else self.decoder_vocab_size
        decoder.num_hidden_layers = self.decoder_layers
        decoder.num_attention_heads = self.decoder_attention_heads
        decoder.num_key_value_heads = self.num_key_value_heads if grouped else self.decoder_attention_heads
        decoder.head_dim = self.head_dim if own_head_dim else self.hidden_size // self.decoder_attention_heads
        decoder.intermediate_size = self.decoder_intermediate_size
        if self.decoder_pad_token_id is not None:
            decoder.pad_token_id = self.decoder_pad_token_id
        if hasattr(self, "layer_types"):
            decoder.layer_types = repeat_pattern(self.layer_types, self.decoder_layers)
        if self.nope_layers is not None:
            decoder.nope_layers = repeat_pattern(self.nope_layers, self.decoder_layers)
        decoder.is_decoder = decoder.add_cross_attention = True
        return decoder

    def encoder_decoder_config(self) -> Self:
        """The configuration of both stacks, also where `is_decoder` makes this one describe the decoder alone."""
        if not self.is_decoder:
            return self
        both = copy.deepcopy(self)
        both.is_decoder = False
        return both

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Self:
        """The configuration that transformers sizes a cache by: the decoder's view of an encoder-decoder."""
        wants_decoder = bool(decoder) and not encoder
        return self.decoder_config() if wants_decoder and self.stack == "encoder-decoder" else self
