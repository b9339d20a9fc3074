"""The arithmetic of the tutorial "Explicando Transformers", from character ids to scores."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """All heads at once, with a mask as large as the scores."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.n_heads, self.head_dim = heads, width // heads
        self.query_projection, self.key_projection = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.value_projection, self.output_projection = (nn.Linear(width, width, bias=False) for _ in range(2))

    def split(self, states: Tensor) -> Tensor:
        """Heads before positions. *Shape:* (batch_size, seq_len, width)."""
        return states.view(*states.shape[:2], self.n_heads, self.head_dim).transpose(1, 2)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix values. *Shape:* (batch_size, seq_len, width)."""
        query, key = self.split(self.query_projection(queries)), self.split(self.key_projection(keys))
        value = self.split(self.value_projection(values))
        scores = query @ key.transpose(2, 3) / (self.head_dim**0.5)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        mixed = F.softmax(scores, dim=3) @ value
        return self.output_projection(mixed.transpose(1, 2).contiguous().view(queries.shape))


class Layer(nn.Module):
    """Attention with the residual on its values, and a feed-forward network."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.mha, self.mha_layernorm = Attention(width, heads), nn.LayerNorm(width)
        self.ff = nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width))
        self.ff_layernorm = nn.LayerNorm(width)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Encode. *Shape:* (batch_size, seq_len, width)."""
        states = self.mha_layernorm(self.mha(queries, keys, values) + values)
        return self.ff_layernorm(self.ff(states) + states)


class DecoderLayer(nn.Module):
    """Masked attention without a residual; its output makes the values of the next."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.mha, self.transformer_layer = Attention(width, heads), Layer(width, heads, inner)

    def forward(self, states: Tensor, memory: Tensor) -> Tensor:
        """Decode. *Shape:* (batch_size, seq_len, width)."""
        rows, length, _ = states.shape
        mask = torch.ones((rows, self.mha.n_heads, length, length), device=states.device).triu(diagonal=1).bool()
        return self.transformer_layer(memory, memory, self.mha(states, states, states, mask))


class Stack(nn.Module):
    """Layers and nothing else."""

    def __init__(self, layer: type[nn.Module], sizes: tuple[int, int, int, int]) -> None:
        super().__init__()
        width, heads, inner, depth = sizes
        self.layers = nn.ModuleList(layer(width, heads, inner) for _ in range(depth))


class Explicando(nn.Module):
    """The tutorial's `Transformer` between its tokenizer and its argmax."""

    def __init__(self, vocabulary: int, outputs: int, sizes: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.tokenizer = nn.ModuleDict({"embedding": nn.Embedding(vocabulary, sizes[0])})
        self.input_processor = nn.ModuleDict({"tokenizer": self.tokenizer})
        self.encoder, self.decoder = Stack(Layer, sizes), Stack(DecoderLayer, sizes)
        self.output_processor = nn.ModuleDict({"linear": nn.Linear(sizes[0], outputs)})

    @torch.no_grad()
    def embed(self, ids: Tensor) -> Tensor:
        """Add positions where no gradient is recorded: embeddings never learn. *Shape:* (batch_size, seq_len)."""
        embedded = self.tokenizer["embedding"](ids)
        width = embedded.shape[-1]
        halves = torch.arange(width // 2).float().repeat_interleave(2)
        phases = torch.arange(ids.shape[1], dtype=torch.float).view(-1, 1) / (10000 ** (2 * halves / width))
        is_odd = (torch.arange(width, dtype=torch.float) % 2).bool()
        return embedded + torch.where(is_odd, phases.cos(), phases.sin()).to(ids.device)

    def forward(self, ids: Tensor) -> Tensor:
        """Score the output at every input character. *Shape:* (batch_size, seq_len)."""
        states = memory = self.embed(ids)
        for layer in self.encoder.layers:
            memory = layer(memory, memory, memory)
        for layer in self.decoder.layers:
            states = layer(states, memory)
        return self.output_processor["linear"](states)
