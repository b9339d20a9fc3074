"""Stacks: embeddings, layers, final norm; the encoder, the decoder and both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Cache
from .config import Config
from .layers import DecoderLayer, EncoderLayer
from .norms import build_norm
from .positions import RelativeBuckets, RelativeVectors, alibi, build_position, rotary, sinusoids
from .streams import StreamEnd, begun, ended


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


def bias_of(bias: Any, index: int, config: Config) -> Any:
    """The term on the scores of one layer."""
    if config.nope_layers is not None:
        return None if config.nope_layers[index] else bias
    return bias


def entered(x: Tensor, layer: Any, index: int, config: Config) -> Tensor:
    """The input of one layer: one that is applied again and again learns a vector for each time."""
    if config.step_embeddings:
        return x + layer.step_embedding.weight[index]
    return x


def score_bias(stack: Any, queries: Tensor, keys: Tensor, config: Config) -> Any:
    """The term on scores by positions: numbers to add, vectors that attention projects, or None."""
    if config.position == "t5" or "bias" in config.position_hooks:
        return stack.position.bias(queries, keys)
    if config.position == "alibi":
        return alibi(queries, keys, config)
    return stack.position() if config.position == "disentangled" else None


class Stack(nn.Module):
    """Base of encoder and decoder: embeddings, layers, and the beginning and end of the stream."""

    position: Any

    def __init__(self, config: Config, layer: Any, is_causal: bool) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size if config.embedding_size is None else config.embedding_size
        if "works-on-features" not in config.quirks:
            self.embed_tokens = nn.Embedding(config.vocab_size, width)
        if config.type_vocab_size is not None and not is_causal:
            self.token_types = nn.Embedding(config.type_vocab_size, width)
        if config.position in ("learned", "learned-unpadded"):
            self.position = nn.Embedding(config.max_position_embeddings, width)
        elif config.position == "t5":
            self.position = RelativeBuckets(config, is_causal=is_causal)
        elif config.position == "disentangled":
            self.position = RelativeVectors(config)
        elif not (config.is_rotary or config.position in ("none", "alibi", "sinusoidal", "sinusoidal-halves")):
            self.position = build_position(config)
        if config.embedding_norm:
            same = config.embedding_norm_eps == config.layer_norm_eps
            eps = config.layer_norm_eps if same else config.embedding_norm_eps
            self.embedding_norm = build_norm(config, width, eps)
        if config.embedding_size is not None:
            self.embedding_projection = nn.Linear(config.embedding_size, config.hidden_size)
        if config.residual in ("gated-hyper-connections", "manifold-hyper-connections", "attention-residuals"):
            self.stream = StreamEnd(config)
        if config.share_layers:
            self.layers = nn.ModuleList([layer(config, 0)])
        else:
            self.layers = nn.ModuleList(layer(config, index) for index in range(config.num_hidden_layers))
        if config.final_norm:
            self.norm = build_norm(config, config.hidden_size, config.layer_norm_eps)

    def look_up(self, ids: Tensor) -> Tensor:
        """The vectors of tokens. *Shape:* (batch, length) -> (batch, length, width)."""
        if "works-on-features" in self.config.quirks:
            # The original's defect: there is no vocabulary, and what is given are vectors.
            return ids
        x = self.embed_tokens(ids)
        if "embedding-never-learns" in self.config.quirks:
            # The original's defect: no gradient reaches the embeddings.
            x = x.detach()
        if self.config.scale_embedding:
            # Embeddings times the root of the width (Vaswani et al. 2017, section 3.4).
            x = x * x.shape[-1] ** 0.5
        return x

    def embed(self, ids: Tensor, positions: Tensor, token_types: Tensor | None = None) -> Tensor:
        """Look tokens up and add their positions. *Shape:* (batch, length) -> (batch, length, hidden_size)."""
        x = self.look_up(ids)
        if token_types is not None:
            x = x + self.token_types(token_types)
        if "table-ends-at-1000" in self.config.quirks:
            # The original's defect: there are no more positions.
            assert int(positions.max()) < 1000
        if self.config.position in ("learned", "learned-unpadded"):
            x = x + self.position(positions)
        elif "changes-its-inputs" in self.config.quirks and self.config.position == "sinusoidal":
            # The original's defect: embeddings are changed in place, given ones too.
            x = x.add_(sinusoids(positions, x.shape[-1], self.config.position, self.config).to(x.dtype))
        elif self.config.position in ("sinusoidal", "sinusoidal-halves"):
            x = x + sinusoids(positions, x.shape[-1], self.config.position, self.config).to(x.dtype)
        elif "embed" in self.config.position_hooks:
            x = self.position.embed(x, positions)
        if self.config.embedding_norm:
            x = self.embedding_norm(x)
        if self.config.dropout:
            x = F.dropout(x, self.config.dropout, self.training)
        if self.config.embedding_size is not None:
            # Embeddings are narrower than the stream (Lan et al. 2019, ALBERT, section 3.1).
            x = self.embedding_projection(x)
        return x

    def through(
        self,
        ids: Tensor,
        x: Tensor,
        mask: Tensor,
        near: Any,
        bias: Any,
        rotation: Any,
        local: Any,
        cache: list[Cache] | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Run the layers and the final norm; an encoder's layers leave the last three arguments alone."""
        config = self.config
        # The stream: several vectors a token, at first all its embedding.
        x = begun(x, config)
        earlier = dict[str, Tensor]() if config.keeps_values else {"ids": ids} if config.looks_up_values else None
        layers = [self.layers[0]] * config.num_hidden_layers if config.share_layers else self.layers
        for index, layer in enumerate(layers):
            x = entered(x, layer, index, config)
            visible = seen(mask, near, index, config)
            layer_rotation = rotation_of(rotation, local, index, config)
            kept = cache[index] if cache else {} if config.generates_with_cache else None
            x = layer(x, visible, bias_of(bias, index, config), layer_rotation, earlier, kept, memory, memory_mask)
        # One vector a token again.
        x = ended(x, self, config)
        return self.norm(x) if config.final_norm else x


class Encoder(Stack):
    """Layers that see the whole input."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, EncoderLayer, is_causal=False)

    def forward(
        self, ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Hidden states. *Shape:* (batch, length) -> (batch, length, hidden_size); the mask is 1 for real tokens."""
        if "masks-from-token-ids" in self.config.quirks:
            # The original's defect: without a mask, each token that is the padding's is masked.
            real = ids != self.config.pad_token_id if attention_mask is None else attention_mask
        else:
            real = None if "padding-is-attended" in self.config.quirks else attention_mask
        positions = torch.arange(ids.shape[1], device=ids.device)
        tokens = ids[..., 0] if "works-on-features" in self.config.quirks else ids
        if "padding-is-attended" in self.config.quirks:
            # The original's defect: padding takes part in attention like any other token.
            mask = torch.ones_like(tokens)[:, None, None].bool()
        else:
            mask = (torch.ones_like(tokens) if real is None else real)[:, None, None].bool()
        if self.config.all_layers_have_windows or self.config.some_layers_have_windows:
            # A token sees those that are near it (Beltagy et al. 2020, Longformer, section 3.1).
            near = (positions - positions[:, None]).abs() <= self.config.sliding_window
        else:
            near = None
        if self.config.all_layers_have_windows:
            mask = mask & near
        bias = score_bias(self, positions, positions, self.config)
        if self.config.position_skips_padding and real is not None:
            positions = (real.cumsum(dim=1) - 1).clamp(min=0)
        config = self.config
        rotation = rotary(positions, config.rope_theta, config.rope_type, config) if config.is_rotary else None
        # Layers that see near tokens alone have shorter wavelengths (Gemma team 2025, section 2).
        local = rotary(positions, config.rope_local_theta, config.rope_local_type, config) if config.has_local else None
        if self.config.type_vocab_size is not None and token_type_ids is None:
            token_type_ids = torch.zeros_like(ids)
        x = self.embed(ids, positions, token_type_ids)
        return self.through(ids, x, mask, near, bias, rotation, local)


class Decoder(Stack):
    """Layers in which each token sees itself and earlier ones."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, DecoderLayer, is_causal=True)

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: list[Cache] | None = None,
        start: int = 0,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        depths: nn.ModuleList | None = None,
    ) -> Tensor:
        """Hidden states. *Shape:* (batch, length) -> (batch, length, hidden_size)."""
        if "masks-from-token-ids" in self.config.quirks:
            # The original's defect: without a mask, each token that is the padding's is masked.
            real = ids != self.config.pad_token_id if attention_mask is None else attention_mask
        else:
            real = None if "padding-is-attended" in self.config.quirks else attention_mask
        if self.config.generates_with_cache:
            # `start` tokens are cached already.
            keys = torch.arange(start + ids.shape[1], device=ids.device)
            positions = keys[start:]
        else:
            positions = torch.arange(ids.shape[1], device=ids.device)
            keys = positions
        mask = keys <= positions[:, None]
        if self.config.all_layers_have_windows or self.config.some_layers_have_windows:
            # A token sees those that are near it (Beltagy et al. 2020, Longformer, section 3.1).
            near = positions[:, None] - keys < self.config.sliding_window
        else:
            near = None
        if self.config.all_layers_have_windows:
            mask = mask & near
        if real is not None:
            mask = mask & real[:, None, None].bool()
            if self.config.mixer != "attention":
                # Layers without attention would remember padding.
                assert not (real[:, 1:] > real[:, :-1]).any(), "padding has to follow the tokens of a text"
        if "decoder-sees-the-future" in self.config.quirks:
            # The original's defect: each token sees what the last one does.
            mask = mask[..., -1:, :]
        if "evaluation-sees-the-future" in self.config.quirks and not self.training:
            # The original's defect: outside of training, each token sees what the last one does.
            mask = mask[..., -1:, :]
        bias = score_bias(self, positions, keys, self.config)
        if self.config.position_skips_padding and real is not None:
            positions = (real.cumsum(dim=1) - 1).clamp(min=0)
        if "every-step-is-position-zero" in self.config.quirks:
            # The original's defect: each call counts from zero, so that tokens written one by one all have position 0.
            positions = torch.arange(ids.shape[1], device=ids.device)
        config = self.config
        rotation = rotary(positions, config.rope_theta, config.rope_type, config) if config.is_rotary else None
        # Layers that see near tokens alone have shorter wavelengths (Gemma team 2025, section 2).
        local = rotary(positions, config.rope_local_theta, config.rope_local_type, config) if config.has_local else None
        x = self.embed(ids, positions)
        x = self.through(ids, x, mask, near, bias, rotation, local, cache, memory, memory_mask)
        if self.config.num_nextn_predict_layers and depths is not None:
            # Further layers look at the tokens that follow, one more each (DeepSeek-V3, section 2.2).
            states, last = [x], self.config.num_hidden_layers - 1
            layer_rotation, mask = rotation_of(rotation, local, last, config), seen(mask, near, last, config)
            for shift, depth in enumerate(depths, start=1):
                embedded = self.look_up(ids).roll(-shift, dims=1)
                earlier = {"ids": ids.roll(-shift, dims=1)} if config.looks_up_values else None
                states.append(depth(states[-1], embedded, mask, bias_of(bias, last, config), layer_rotation, earlier))
            return torch.stack(states)
        return x


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
        """Hidden states of the target, and of the source."""
        encoded = self.encoder(ids, attention_mask) if memory is None else memory
        tokens = ids[..., 0] if "works-on-features" in self.config.quirks else ids
        if "padding-is-attended" in self.config.quirks:
            # As in the encoder.
            memory_mask = torch.ones_like(tokens)[:, None, None].bool()
        elif "masks-from-token-ids" in self.config.quirks:
            # As in the encoder.
            real = ids != self.config.pad_token_id if attention_mask is None else attention_mask
            memory_mask = real[:, None, None].bool()
        else:
            memory_mask = (torch.ones_like(tokens) if attention_mask is None else attention_mask)[:, None, None].bool()
        return self.decoder(decoder_ids, None, cache, start, encoded, memory_mask), encoded
