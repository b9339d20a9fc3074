"""The arithmetic of the classifier in chapter 3 of "Natural Language Processing with Transformers"."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class AttentionHead(nn.Module):
    """One head, with its own projections."""

    def __init__(self, width: int, head_dim: int) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, head_dim), nn.Linear(width, head_dim), nn.Linear(width, head_dim)

    def forward(self, states: Tensor) -> Tensor:
        """Mix values. *Shape:* (batch_size, seq_len, width)."""
        query, key, value = self.q(states), self.k(states), self.v(states)
        scores = torch.bmm(query, key.transpose(1, 2)) / torch.sqrt(torch.tensor(query.size(-1), dtype=torch.float32))
        return torch.bmm(F.softmax(scores, dim=-1), value)


class MultiHeadAttention(nn.Module):
    """A head after the other."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(AttentionHead(width, width // heads) for _ in range(heads))
        self.output_linear = nn.Linear(width, width)

    def forward(self, states: Tensor) -> Tensor:
        """Mix values. *Shape:* (batch_size, seq_len, width)."""
        return self.output_linear(torch.cat([head(states) for head in self.heads], dim=-1))


class FeedForward(nn.Module):
    """The same network at every position."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        """Transform. *Shape:* (batch_size, seq_len, width)."""
        return self.dropout(self.linear_2(F.gelu(self.linear_1(states))))


class Layer(nn.Module):
    """Pre-norm: each branch normalises what it reads."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.layer_norm_1, self.layer_norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed_forward = MultiHeadAttention(width, heads), FeedForward(width, inner, dropout)

    def forward(self, states: Tensor) -> Tensor:
        """Encode. *Shape:* (batch_size, seq_len, width)."""
        states = states + self.attention(self.layer_norm_1(states))
        return states + self.feed_forward(self.layer_norm_2(states))


class Embeddings(nn.Module):
    """Tokens and positions, normalised."""

    def __init__(self, vocabulary: int, length: int, width: int, dropout: float) -> None:
        super().__init__()
        self.token_embeddings, self.position_embeddings = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layer_norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Embed. *Shape:* (batch_size, seq_len)."""
        positions = torch.arange(ids.size(1), dtype=torch.long, device=ids.device).unsqueeze(0)
        return self.dropout(self.layer_norm(self.token_embeddings(ids) + self.position_embeddings(positions)))


class Encoder(nn.Module):
    """Embeddings and layers, without a final norm."""

    def __init__(self, vocabulary: int, sizes: tuple[int, int, int, int], length: int, dropout: float) -> None:
        super().__init__()
        width, heads, inner, depth = sizes
        self.embeddings = Embeddings(vocabulary, length, width, dropout)
        self.layers = nn.ModuleList(Layer(width, heads, inner, dropout) for _ in range(depth))

    def forward(self, ids: Tensor) -> Tensor:
        """Encode. *Shape:* (batch_size, seq_len)."""
        states = self.embeddings(ids)
        for layer in self.layers:
            states = layer(states)
        return states


class Nlpt(nn.Module):
    """The chapter's classifier."""

    def __init__(
        self, vocabulary: int, sizes: tuple[int, int, int, int], length: int, dropout: float = 0.0, labels: int = 3
    ) -> None:
        super().__init__()
        self.encoder = Encoder(vocabulary, sizes, length, dropout)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(sizes[0], labels)

    def forward(self, ids: Tensor) -> Tensor:
        """Score every class by the first token. *Shape:* (batch_size, seq_len)."""
        return self.classifier(self.dropout(self.encoder(ids)[:, 0, :]))
