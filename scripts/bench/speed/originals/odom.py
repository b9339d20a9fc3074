"""The arithmetic of the notebook after Frank Odom's "Transformers from Scratch in PyTorch"."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def positions(length: int, width: int) -> Tensor:
    """The document's table, computed again in every call. *Shape:* (1, length, width)."""
    place = torch.arange(length, dtype=torch.float).reshape(1, -1, 1)
    column = torch.arange(width, dtype=torch.float).reshape(1, 1, -1)
    phase = place / (1e4 ** (column / width))
    return torch.where(column.long() % 2 == 0, torch.sin(phase), torch.cos(phase))


class AttentionHead(nn.Module):
    """One head, with a softmax over the batch."""

    def __init__(self, width: int, head_dim: int) -> None:
        super().__init__()
        self.q_linear_layer, self.k_linear_layer = nn.Linear(width, head_dim), nn.Linear(width, head_dim)
        self.v_linear_layer = nn.Linear(width, head_dim)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Mix values. *Shape:* (batch_size, seq_len, width)."""
        query, key, value = self.q_linear_layer(q), self.k_linear_layer(k), self.v_linear_layer(v)
        scores = torch.bmm(query, key.transpose(1, 2)) / (key.size(-1) ** 0.5)
        return torch.bmm(nn.functional.softmax(scores, dim=0), value)


class MultiHeadAttention(nn.Module):
    """The same head again and again."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_heads = nn.ModuleList([AttentionHead(width, max(width // heads, 1))] * heads)
        self.linear_layer = nn.Linear(heads * max(width // heads, 1), width)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Mix values. *Shape:* (batch_size, seq_len, width)."""
        return self.linear_layer(torch.cat([head(q, k, v) for head in self.attention_heads], dim=-1))


class Residual(nn.Module):
    """The norm of a sum."""

    def __init__(self, sublayer: nn.Module, width: int, dropout: float) -> None:
        super().__init__()
        self.sublayer, self.norm, self.dropout = sublayer, nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, *tensors: Tensor) -> Tensor:
        """Add and normalise. *Shape:* (batch_size, seq_len, width)."""
        return self.norm(tensors[0] + self.dropout(self.sublayer(*tensors)))


def feed_forward(width: int, inner: int, dropout: float) -> Residual:
    """The network after attention."""
    return Residual(nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)), width, dropout)


class Encoder(nn.Module):
    """Attention and feed-forward network."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention_layer = Residual(MultiHeadAttention(width, heads), width, dropout)
        self.ff_layer = feed_forward(width, inner, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Encode. *Shape:* (batch_size, seq_len, width)."""
        return self.ff_layer(self.attention_layer(x, x, x))


class Decoder(nn.Module):
    """Two attentions without masks."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention_layer_1 = Residual(MultiHeadAttention(width, heads), width, dropout)
        self.attention_layer_2 = Residual(MultiHeadAttention(width, heads), width, dropout)
        self.ff_layer = feed_forward(width, inner, dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """Decode. *Shape:* (batch_size, seq_len, width)."""
        y = self.attention_layer_1(x, x, x)
        return self.ff_layer(self.attention_layer_2(y, memory, memory))


class Odom(nn.Module):
    """The document's `Transformer` on features, up to its final softmax; layers are one module."""

    def __init__(self, sizes: tuple[int, int, int, int], dropout: float = 0.0) -> None:
        super().__init__()
        width, heads, inner, depth = sizes
        self.encoders = nn.ModuleList([Encoder(width, heads, inner, dropout)] * depth)
        self.decoders = nn.ModuleList([Decoder(width, heads, inner, dropout)] * depth)
        self.external_ff = nn.Linear(width, width)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Score features. *Shape:* (batch_size, source_len, width) and (batch_size, target_len, width)."""
        memory = source + positions(source.size(1), source.size(2)).to(source.device)
        states = target + positions(target.size(1), target.size(2)).to(target.device)
        for encoder in self.encoders:
            memory = encoder(memory)
        for decoder in self.decoders:
            states = decoder(states, memory)
        return self.external_ff(states)
