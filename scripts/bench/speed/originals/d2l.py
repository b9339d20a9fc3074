"""The arithmetic of the chapter "Transformer" of Dive into Deep Learning, with the attention of its package."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Heads folded into the batch, masks given as numbers of valid keys."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = heads
        self.W_q, self.W_k = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.W_v, self.W_o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def split(self, states: Tensor) -> Tensor:
        """Fold the heads. *Shape:* (batch_size, seq_len, width) to (batch_size * heads, seq_len, head_dim)."""
        states = states.reshape(states.shape[0], states.shape[1], self.num_heads, -1).permute(0, 2, 1, 3)
        return states.reshape(-1, states.shape[2], states.shape[3])

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        """Mix values. *Shape:* (batch_size, seq_len, width)."""
        query, key, value = self.split(self.W_q(queries)), self.split(self.W_k(keys)), self.split(self.W_v(values))
        scores = torch.bmm(query, key.transpose(1, 2)) / math.sqrt(query.shape[-1])
        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, repeats=self.num_heads, dim=0)
        mixed = torch.bmm(self.dropout(masked_softmax(scores, valid_lens)), value)
        mixed = mixed.reshape(-1, self.num_heads, mixed.shape[1], mixed.shape[2]).permute(0, 2, 1, 3)
        return self.W_o(mixed.reshape(mixed.shape[0], mixed.shape[1], -1))


def masked_softmax(scores: Tensor, valid_lens: Tensor | None) -> Tensor:
    """The softmax of the first scores of each row. *Shape:* (batch_size * heads, query_len, key_len)."""
    if valid_lens is None:
        return F.softmax(scores, dim=-1)
    shape = scores.shape
    valid_lens = torch.repeat_interleave(valid_lens, shape[1]) if valid_lens.dim() == 1 else valid_lens.reshape(-1)
    flat = scores.reshape(-1, shape[-1])
    is_valid = torch.arange(shape[-1], dtype=torch.float32, device=flat.device)[None, :] < valid_lens[:, None]
    flat[~is_valid] = -1e6
    return F.softmax(flat.reshape(shape), dim=-1)


class AddNorm(nn.Module):
    """The norm of a sum."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout, self.ln = nn.Dropout(dropout), nn.LayerNorm(width)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Add and normalise. *Shape:* any."""
        return self.ln(self.dropout(y) + x)


class FeedForward(nn.Module):
    """The same network at every position."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.dense1, self.dense2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """Transform. *Shape:* (batch_size, seq_len, width)."""
        return self.dense2(self.dense1(x).relu())


class EncoderBlock(nn.Module):
    """Attention and feed-forward network."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.addnorm1 = Attention(width, heads, dropout), AddNorm(width, dropout)
        self.ffn, self.addnorm2 = FeedForward(width, inner), AddNorm(width, dropout)

    def forward(self, x: Tensor, valid_lens: Tensor | None) -> Tensor:
        """Encode. *Shape:* (batch_size, seq_len, width)."""
        y = self.addnorm1(x, self.attention(x, x, x, valid_lens))
        return self.addnorm2(y, self.ffn(y))


class DecoderBlock(nn.Module):
    """Causal in training; token by token it keeps its inputs, and projects all of them again at every step."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention1, self.addnorm1 = Attention(width, heads, dropout), AddNorm(width, dropout)
        self.attention2, self.addnorm2 = Attention(width, heads, dropout), AddNorm(width, dropout)
        self.ffn, self.addnorm3 = FeedForward(width, inner), AddNorm(width, dropout)

    def forward(self, x: Tensor, state: list[Any], number: int) -> Tensor:
        """Decode. *Shape:* (batch_size, seq_len, width)."""
        memory, memory_lens, cache = state
        keys = x if cache[number] is None else torch.cat((cache[number], x), dim=1)
        cache[number] = keys
        valid_lens = None
        if self.training:
            valid_lens = torch.arange(1, x.shape[1] + 1, device=x.device).repeat(x.shape[0], 1)
        y = self.addnorm1(x, self.attention1(x, keys, keys, valid_lens))
        z = self.addnorm2(y, self.attention2(y, memory, memory, memory_lens))
        return self.addnorm3(z, self.ffn(z))


class Stack(nn.Module):
    """Embeddings, a table of 1000 positions, and blocks."""

    def __init__(
        self, block: type[nn.Module], vocabulary: int, sizes: tuple[int, int, int, int], dropout: float
    ) -> None:
        super().__init__()
        width, heads, inner, depth = sizes
        self.embedding = nn.Embedding(vocabulary, width)
        phases = torch.arange(1000.0)[:, None] / torch.pow(10000, torch.arange(0, width, 2.0) / width)
        self.table = torch.stack([phases.sin(), phases.cos()], dim=-1).flatten(1)
        self.dropout = nn.Dropout(dropout)
        self.blks = nn.Sequential()
        for number in range(depth):
            self.blks.add_module(f"block{number}", block(width, heads, inner, dropout))

    def embed(self, ids: Tensor) -> Tensor:
        """Scale and add the first positions. *Shape:* (batch_size, seq_len)."""
        embedded = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(embedded + self.table[: ids.shape[1]].to(ids.device))


class Decoder(Stack):
    """A stack with the output projection next to it."""

    def __init__(self, vocabulary: int, sizes: tuple[int, int, int, int], dropout: float) -> None:
        super().__init__(DecoderBlock, vocabulary, sizes, dropout)
        self.dense = nn.Linear(sizes[0], vocabulary)


class D2L(nn.Module):
    """The chapter's encoder and decoder."""

    def __init__(self, vocabulary: int, sizes: tuple[int, int, int, int], dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder = Stack(EncoderBlock, vocabulary, sizes, dropout)
        self.decoder = Decoder(vocabulary, sizes, dropout)

    def encode(self, src: Tensor, valid_lens: Tensor) -> list[Any]:
        """The decoder's first state. *Shape:* (batch_size, source_len) and (batch_size,)."""
        x = self.encoder.embed(src)
        for block in self.encoder.blks:
            x = block(x, valid_lens)
        return [x, valid_lens, [None] * len(self.decoder.blks)]

    def decode(self, trg: Tensor, state: list[Any]) -> Tensor:
        """Score what follows each token. *Shape:* (batch_size, target_len)."""
        x = self.decoder.embed(trg)
        for number, block in enumerate(self.decoder.blks):
            x = block(x, state, number)
        return self.decoder.dense(x)

    def forward(self, src: Tensor, trg: Tensor, valid_lens: Tensor) -> Tensor:
        """Score every target token. *Shape:* (batch_size, source_len), (batch_size, target_len), (batch_size,)."""
        return self.decode(trg, self.encode(src, valid_lens))

    def generate(self, src: Tensor, valid_lens: Tensor, start: int, steps: int) -> Tensor:
        """Write greedily, a token a call. *Shape:* (batch_size, source_len) and (batch_size,)."""
        state = self.encode(src, valid_lens)
        written = [torch.full((src.shape[0], 1), start, device=src.device)]
        for _ in range(steps):
            written.append(self.decode(written[-1], state).argmax(dim=2))
        return torch.cat(written, dim=1)
