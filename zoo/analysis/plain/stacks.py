"""Stacks: embeddings, layers, final norm; the encoder, the decoder and both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Cache
from .config import Config, NoPlainForm
from .layers import DecoderLayer, EncoderLayer
from .norms import build_norm
from .positions import RelativeBuckets, alibi, rotary, sinusoids


def seen(mask: Tensor, near: Any, index: int, config: Config) -> Tensor:
    """The mask of one layer: some layers see near tokens alone."""
    if config.some_layers_have_windows:
        return mask & near if config.layer_types[index] == "sliding_attention" else mask
    return mask


def rotation_of(rotation: Any, local: Any, index: int, config: Config) -> Any:
    """The rotation of one layer: short wavelengths where it sees near tokens alone, none where it has no positions."""
    if config.position == "rotary-by-layer":
        return local if config.layer_types[index] == "sliding_attention" else rotation
    if config.nope_layers is not None:
        return None if config.nope_layers[index] else rotation
    return rotation


def entered(x: Tensor, layer: Any, index: int, config: Config) -> Tensor:
    """The input of one layer: one that is applied again and again learns a vector for each time."""
    if config.variant == "universal":
        return x + layer.step_embedding.weight[index]
    return x


class Stack(nn.Module):
    """What encoder and decoder have in common: embeddings and the final norm."""

    position: Any
    layers: nn.ModuleList

    def __init__(self, config: Config, is_causal: bool) -> None:
        super().__init__()
        self.config = config
        if config.nope_layers is not None and config.position in ("alibi", "t5"):
            raise NoPlainForm("nope_layers")
        width = config.hidden_size if config.embedding_size is None else config.embedding_size
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        if config.position == "learned":
            self.position = nn.Embedding(config.max_position_embeddings, width)
        elif config.position == "t5":
            self.position = RelativeBuckets(config, is_causal=is_causal)
        elif config.position == "learned-unpadded":
            raise NoPlainForm("position")
        if config.embedding_norm:
            same = config.embedding_norm_eps == config.layer_norm_eps
            eps = config.layer_norm_eps if same else config.embedding_norm_eps
            self.embedding_norm = build_norm(config, width, eps)
        if config.embedding_size is not None:
            self.embedding_projection = nn.Linear(config.embedding_size, config.hidden_size)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Look tokens up and add their positions. *Shape:* (batch, length) -> (batch, length, hidden_size)."""
        x = self.embed_tokens(ids)
        if self.config.scale_embedding:
            x = x * x.shape[-1] ** 0.5
        if self.config.position == "learned":
            x = x + self.position(positions)
        elif self.config.position in ("sinusoidal", "sinusoidal-halves"):
            x = x + sinusoids(positions, self.config).to(x.dtype)
        if self.config.embedding_norm:
            x = self.embedding_norm(x)
        if self.config.dropout:
            x = F.dropout(x, self.config.dropout, self.training)
        if self.config.embedding_size is not None:
            # Embeddings are narrower than the stream (Lan et al. 2019, ALBERT, section 3.1).
            x = self.embedding_projection(x)
        return x


class Encoder(Stack):
    """Layers that see the whole input."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, is_causal=False)
        if config.share_layers:
            self.layers = nn.ModuleList([EncoderLayer(config, 0)])
        else:
            self.layers = nn.ModuleList(EncoderLayer(config, index) for index in range(config.num_hidden_layers))
        if config.final_norm:
            self.norm = build_norm(config, config.hidden_size, config.layer_norm_eps)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Hidden states. *Shape:* (batch, length) -> (batch, length, hidden_size); the mask is 1 for real tokens."""
        if "masks-from-token-ids" in self.config.quirks and attention_mask is None:
            # The original's defect: without a mask, each token that is the padding's is masked.
            attention_mask = ids != self.config.pad_token_id
        positions = torch.arange(ids.shape[1], device=ids.device)
        if "padding-is-attended" in self.config.quirks:
            # The original's defect: padding takes part in attention like any other token.
            attention_mask = None
        mask = (torch.ones_like(ids) if attention_mask is None else attention_mask)[:, None, None].bool()
        if self.config.all_layers_have_windows or self.config.some_layers_have_windows:
            # A token sees those that are near it (Beltagy et al. 2020, Longformer, section 3.1).
            near = (positions - positions[:, None]).abs() <= self.config.sliding_window
        else:
            near = None
        if self.config.all_layers_have_windows:
            mask = mask & near
        if self.config.position == "t5":
            bias = self.position.bias(positions, positions)
        elif self.config.position == "alibi":
            bias = alibi(positions, positions, self.config)
        else:
            bias = None
        rotation = rotary(positions, self.config.rope_theta, self.config) if self.config.is_rotary else None
        local = rotary(positions, self.config.rope_local_theta, self.config) if self.config.is_rotary else None
        x = self.embed(ids, positions)
        if self.config.residual == "hyper-connections":
            # Several streams, which begin alike and are summed in the end.
            x = x[:, :, None].expand(-1, -1, self.config.num_streams, -1)
        earlier = dict[str, Tensor]() if self.config.attention == "value-residual" else None
        layers = [self.layers[0]] * self.config.num_hidden_layers if self.config.share_layers else self.layers
        for index, layer in enumerate(layers):
            turned = rotation_of(rotation, local, index, self.config)
            x = entered(x, layer, index, self.config)
            x = layer(x, seen(mask, near, index, self.config), bias, turned, earlier)
        if self.config.residual == "hyper-connections":
            x = x.sum(dim=2)
        return self.norm(x) if self.config.final_norm else x


class Decoder(Stack):
    """Layers in which each token sees itself and earlier ones."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, is_causal=True)
        if config.share_layers:
            self.layers = nn.ModuleList([DecoderLayer(config, 0)])
        else:
            self.layers = nn.ModuleList(DecoderLayer(config, index) for index in range(config.num_hidden_layers))
        if config.final_norm:
            self.norm = build_norm(config, config.hidden_size, config.layer_norm_eps)

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: list[Cache] | None = None,
        start: int = 0,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Hidden states; `start` tokens are cached already. *Shape:* (batch, length) -> (batch, length, width)."""
        if "masks-from-token-ids" in self.config.quirks and attention_mask is None:
            # The original's defect: without a mask, each token that is the padding's is masked.
            attention_mask = ids != self.config.pad_token_id
        keys = torch.arange(start + ids.shape[1], device=ids.device)
        positions = keys[start:]
        mask = keys <= positions[:, None]
        if self.config.all_layers_have_windows or self.config.some_layers_have_windows:
            # A token sees those that are near it (Beltagy et al. 2020, Longformer, section 3.1).
            near = positions[:, None] - keys < self.config.sliding_window
        else:
            near = None
        if self.config.all_layers_have_windows:
            mask = mask & near
        if attention_mask is not None:
            mask = mask & attention_mask[:, None, None].bool()
        if self.config.position == "t5":
            bias = self.position.bias(positions, keys)
        elif self.config.position == "alibi":
            bias = alibi(positions, keys, self.config)
        else:
            bias = None
        rotation = rotary(positions, self.config.rope_theta, self.config) if self.config.is_rotary else None
        local = rotary(positions, self.config.rope_local_theta, self.config) if self.config.is_rotary else None
        x = self.embed(ids, positions)
        if self.config.residual == "hyper-connections":
            # Several streams, which begin alike and are summed in the end.
            x = x[:, :, None].expand(-1, -1, self.config.num_streams, -1)
        earlier = dict[str, Tensor]() if self.config.attention == "value-residual" else None
        config = self.config
        layers = [self.layers[0]] * self.config.num_hidden_layers if self.config.share_layers else self.layers
        for index, layer in enumerate(layers):
            turned = rotation_of(rotation, local, index, config)
            x = entered(x, layer, index, config)
            x = layer(
                x, seen(mask, near, index, config), bias, turned, cache and cache[index], memory, memory_mask, earlier
            )
        if self.config.residual == "hyper-connections":
            x = x.sum(dim=2)
        return self.norm(x) if self.config.final_norm else x


class EncoderDecoder(nn.Module):
    """An encoder, and a decoder that reads its output (Vaswani et al. 2017, figure 1)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config.of_decoder())
        if config.share_encoder_decoder_embeddings:
            self.decoder.embed_tokens = self.encoder.embed_tokens

    def forward(
        self,
        ids: Tensor,
        decoder_ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: list[Cache] | None = None,
        start: int = 0,
        memory: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Hidden states of the target, and of the source unless they are given as `memory`."""
        if "masks-from-token-ids" in self.config.quirks and attention_mask is None:
            # As in the encoder.
            attention_mask = ids != self.config.pad_token_id
        memory = self.encoder(ids, attention_mask) if memory is None else memory
        memory_mask = (torch.ones_like(ids) if attention_mask is None else attention_mask)[:, None, None].bool()
        return self.decoder(decoder_ids, None, cache, start, memory, memory_mask), memory
