"""Value residual and value embeddings: the first layer's values, or a token embedding, mixed into the values."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache

from zoo.base.errors import InputError

from ..attention import Attention, Heads
from ..configuration import ZooConfig
from ..context import EarlierLayers
from ..embedding import ValueEmbedding
from ..parts import option
from ..validation import require_own_layers
from .kv_sharing import EarlierLayersAttention


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
        """Require unshared layers if only some of them have a table."""
        interval = option(config, cls, "value_embedding_interval")
        if interval > 1:
            given, why = f"attention={config.attention!r}", f"some have a table (value_embedding_interval={interval})"
            require_own_layers(config, given, why, "value_embedding_interval=1")

    def init_weights(self) -> None:
        """Initialize to the mean of both."""
        if self.mixes:
            init.constant_(self.value_lambdas, 0.5)

    def extend(self, key: Tensor, value: Tensor, past: Cache | None, idx: int, earlier: EarlierLayers | None) -> Heads:
        """Mix the values, and append them to those of earlier positions."""
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
        """Initialize to the mean of both."""
        if self.mixes:
            init.constant_(self.value_lambdas, 0.5)

    def extend(self, key: Tensor, value: Tensor, past: Cache | None, idx: int, earlier: Any) -> Heads:
        """Mix the values, and append them to those of earlier positions."""
        if self.mixes:
            (first,) = self.read(earlier, FIRST, value.device)
            value = self.value_lambdas[0] * first + self.value_lambdas[1] * value
        elif earlier is not None:
            earlier.keep(FIRST, value)
        return super().extend(key, value, past, idx, earlier)
