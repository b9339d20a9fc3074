"""Attentions with keys or values from elsewhere: another layer's, the first layer's, or a further embedding."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache

from zoo.base.errors import ConfigError, InputError

from ..attention import Attention, Heads
from ..configuration import ZooConfig
from ..context import EarlierLayers
from ..embedding import ValueEmbedding
from ..parts import POSITIONS, option
from ..validation import require_own_layers


class EarlierLayersAttention(Attention):
    """Attention with layers that keep tensors in [`zoo.models.context.EarlierLayers`][] for later ones."""

    reads_earlier_layers = True

    def read(self, earlier: EarlierLayers | None, name: str, device: torch.device) -> tuple[Tensor, ...]:
        if earlier is None:
            raise InputError(
                f"layer {self.layer_idx} of attention={self.config.attention!r} was called by itself, but reads "
                f"{name}: call the stack that it belongs to"
            )
        return earlier.read(name, device)

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        require_own_layers(config, f"attention={config.attention!r}", "later ones read what an earlier one keeps")


class SharedKeyValueAttention(EarlierLayersAttention):
    """Attention with queries only in the last `num_kv_shared_layers` layers (Gemma 3n; Brandon et al. 2024, section 3).

    They read the keys and values of the last earlier layer with the same `layer_types` entry, including cached ones,
    and cache none; where positions rotate keys, of one with the same `nope_layers` entry, too. A mixer's layers among
    them keep their own state.
    """

    caches_heads = False  # of some layers only
    options: ClassVar[dict[str, Any]] = {"num_kv_shared_layers": 1}

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Require a layer with keys and values for every layer without, and no cross attention."""
        super().check_options(config)
        if config.is_encoder_decoder or config.add_cross_attention:
            raise ConfigError("attention='kv-sharing' was given with cross attention, which shares no keys and values")
        types, shared = config.types_of_layers(), option(config, cls, "num_kv_shared_layers")
        if shared and set(types[-shared:]) == {config.mixer_layer_type}:
            raise ConfigError(
                f"attention='kv-sharing' was given with mixer={config.mixer!r} and num_kv_shared_layers={shared}, but "
                f"none of the last layers has attention, of the types {', '.join(types)}; give layer_types that end "
                "with attention, or a larger num_kv_shared_layers"
            )
        kinds = cls.kinds(config)
        if not 0 <= shared < len(kinds) or not set(kinds[len(kinds) - shared :]) <= set(kinds[: len(kinds) - shared]):
            raise ConfigError(
                f"num_kv_shared_layers={shared} was given for layers of the types {', '.join(types)}"
                f"{f', with nope_layers={config.nope_layers}' if config.nope_layers else ''}; a layer that "
                "shares keys and values needs an earlier one of its type that has its own"
            )

    @classmethod
    def kinds(cls, config: ZooConfig) -> list[tuple[str, str | None]]:
        """Layers with equal entries have keys in one form: their types, with rotated keys also whether theirs are."""
        types, rotates = config.types_of_layers(), POSITIONS.get(config.position).rotates
        return list(zip(types, config.placed_types_of_layers() if rotates else types, strict=True))

    @classmethod
    def sources(cls, config: ZooConfig) -> list[int]:
        """Index of the layer that provides the keys and values of each layer: its own if it has them or is a mixer."""
        kinds = cls.kinds(config)
        own = kinds[: len(kinds) - option(config, cls, "num_kv_shared_layers")]
        last = {kind: place for place, kind in enumerate(own) if kind[0] != config.mixer_layer_type}
        return [*range(len(own)), *(last.get(kind, place) for place, kind in enumerate(kinds) if place >= len(own))]

    @classmethod
    def kv_sharing_modes(cls, config: ZooConfig) -> list[str | None]:
        sources = cls.sources(config)
        stored = {source for place, source in enumerate(sources) if source != place}
        return [
            "reuse" if source != place else "store" if place in stored else None for place, source in enumerate(sources)
        ]

    def build_projections(self, config: ZooConfig) -> None:
        super().build_projections(config)
        self.sharing = self.kv_sharing_modes(config)[self.layer_idx]
        self.source = self.sources(config)[self.layer_idx]
        if self.sharing == "reuse":
            del self.k_proj, self.v_proj, self.k_norm

    def init_values(self, gain: float) -> None:
        if self.sharing != "reuse":
            super().init_values(gain)

    def project(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project queries, and keys and values of zero heads if they are shared."""
        if self.sharing != "reuse":
            return super().project(hidden_states)
        query = self.split_heads(self.q_proj(hidden_states), self.q_norm)
        return query, query[:, :0], query[:, :0]

    def extend(self, key: Tensor, value: Tensor, past: Cache | None, idx: int, earlier: Any) -> Heads:
        """Append keys and values to those of earlier positions, or take another layer's."""
        name = f"keys and values of layer {self.source}"
        if self.sharing == "reuse":
            key, value = self.read(earlier, name, key.device)
            return key, value
        key, value = super().extend(key, value, past, idx, earlier)
        if earlier is not None and self.sharing == "store":
            earlier.keep(name, key, value)
        return key, value


class ValueEmbeddingAttention(Attention):
    """Attention to `lambda_1 * v + lambda_2 * e`, of values and a further embedding of tokens (modded-nanogpt, 2024).

    Layers with a table are the last one and every `value_embedding_interval`-th before it (every second one in
    nanochat). The two factors are learned, one pair per layer, and start at one half. The cache holds mixed values, so
    decoding needs nothing else. Cross attention is the ordinary one.
    """

    parameter_roles: ClassVar[dict[str, str]] = {"value_lambdas": "scalar"}

    reads_token_ids = True
    options: ClassVar[dict[str, Any]] = {"value_embedding_interval": 2}
    least: ClassVar[dict[str, int]] = {"value_embedding_interval": 1}

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        following = config.num_hidden_layers - 1 - layer_idx
        self.mixes = not self.is_cross and following % option(config, type(self), "value_embedding_interval") == 0
        self.attends_as_usual = not self.mixes
        if self.mixes:
            self.value_embedding = ValueEmbedding(config.vocab_size, config.num_key_value_heads * config.head_dim)
            self.value_lambdas = nn.Parameter(torch.empty(2))

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        interval = option(config, cls, "value_embedding_interval")
        if interval > 1:
            given, why = f"attention={config.attention!r}", f"some have a table (value_embedding_interval={interval})"
            require_own_layers(config, given, why, "value_embedding_interval=1")

    def init_weights(self) -> None:
        if self.mixes:
            init.constant_(self.value_lambdas, 0.5)

    def extend(self, key: Tensor, value: Tensor, past: Cache | None, idx: int, earlier: EarlierLayers | None) -> Heads:
        if self.mixes:
            if earlier is None or earlier.token_ids is None:
                raise InputError(
                    f"layer {self.layer_idx} of attention='value-embeddings' looks tokens up by their ids: call the "
                    "model with input_ids (decoder_input_ids for the decoder of a pair), not with embeddings"
                )
            embedded = self.split_heads(self.value_embedding(earlier.token_ids.to(value.device)))
            value = self.value_lambdas[0] * value + self.value_lambdas[1] * embedded
        return super().extend(key, value, past, idx, earlier)


FIRST = "values of the first layer"


class ValueResidualAttention(EarlierLayersAttention):
    """Attention to `lambda_1 * v_1 + lambda_2 * v`, of the values of the first layer and its own (Zhou et al. 2024).

    The first layer is the first one with attention: a mixer's layers have no values. The two factors are learned, one
    pair per layer, and start at one half (Learnable-ResFormer). The cache holds mixed values, so decoding needs nothing
    else. Cross attention is the ordinary one.
    """

    parameter_roles: ClassVar[dict[str, str]] = {"value_lambdas": "scalar"}

    def __init__(self, config: ZooConfig, layer_idx: int, **kwargs: Any) -> None:
        super().__init__(config, layer_idx, **kwargs)
        first = next(place for place, kind in enumerate(config.types_of_layers()) if kind != config.mixer_layer_type)
        self.mixes = layer_idx > first and not self.is_cross
        self.attends_as_usual = not self.mixes
        if self.mixes:
            self.value_lambdas = nn.Parameter(torch.empty(2))

    def init_weights(self) -> None:
        if self.mixes:
            init.constant_(self.value_lambdas, 0.5)

    def extend(self, key: Tensor, value: Tensor, past: Cache | None, idx: int, earlier: Any) -> Heads:
        if self.mixes:
            (first,) = self.read(earlier, FIRST, value.device)
            value = self.value_lambdas[0] * first + self.value_lambdas[1] * value
        elif earlier is not None:
            earlier.keep(FIRST, value)
        return super().extend(key, value, past, idx, earlier)
