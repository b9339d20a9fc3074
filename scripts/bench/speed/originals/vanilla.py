"""The arithmetic of the notebook "Passo a passo de Transformadores", which is arxyzan's vanilla-transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Projections, scores, softmax and mixing, all heads at once."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.scale = heads, width**0.5
        self.keys, self.queries = nn.Linear(width, width), nn.Linear(width, width)
        self.values, self.proj = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Mix values. *Shape:* (batch_size, seq_len, width)."""
        rows, _, width = q.shape

        def split(states: Tensor) -> Tensor:
            return states.view(rows, -1, self.n_heads, width // self.n_heads).permute(0, 2, 1, 3)

        query, key, value = split(self.queries(q)), split(self.keys(k)), split(self.values(v))
        energy = query.matmul(key.permute(0, 1, 3, 2)) / self.scale
        attention = self.dropout(energy.masked_fill(mask == 0, -1e20).softmax(-1))
        return self.proj(attention.matmul(value).permute(0, 2, 1, 3).contiguous().view(rows, -1, width))


def feed_forward(width: int, inner: int, dropout: float) -> nn.Sequential:
    """The network after attention."""
    return nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Dropout(dropout), nn.Linear(inner, width))


class EncoderLayer(nn.Module):
    """Attention and feed-forward network, normalised after each sum; dropout falls on the states, not on a branch."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = feed_forward(width, inner, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, src: Tensor, mask: Tensor) -> Tensor:
        """Encode. *Shape:* (batch_size, seq_len, width)."""
        x = self.norm_1(self.attention(src, src, src, mask) + self.dropout(src))
        return self.norm_2(self.mlp(x) + self.dropout(x))


class DecoderLayer(nn.Module):
    """Self-attention that serves as cross attention too, and the second norm twice; the other weights are unused."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.joint_attention = (Attention(width, heads, dropout) for _ in range(2))
        self.norm_1, self.norm_2, self.norm_3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = feed_forward(width, inner, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, trg: Tensor, src: Tensor, trg_mask: Tensor, src_mask: Tensor) -> Tensor:
        """Decode. *Shape:* (batch_size, seq_len, width)."""
        trg = self.norm_1(trg + self.dropout(self.attention(trg, trg, trg, trg_mask)))
        trg = self.norm_2(trg + self.dropout(self.attention(trg, src, src, src_mask)))
        return self.norm_2(trg + self.dropout(self.mlp(trg)))


class Stack(nn.Module):
    """Embeddings and layers."""

    def __init__(
        self,
        layer: type[nn.Module],
        vocabulary: int,
        sizes: tuple[int, int, int, int],
        length: int,
        dropout: float,
    ) -> None:
        super().__init__()
        width, heads, inner, depth = sizes
        self.scale = width**0.5
        self.tok_emb, self.pos_emb = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(layer(width, heads, inner, dropout) for _ in range(depth))
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, *rest: Tensor) -> Tensor:
        """Embed and apply every layer. *Shape:* (batch_size, seq_len)."""
        positions = torch.arange(0, ids.shape[1]).expand(ids.shape).to(ids.device)
        out = self.dropout(self.tok_emb(ids) * self.scale + self.pos_emb(positions))
        for block in self.blocks:
            out = block(out, *rest)
        return out


class Decoder(Stack):
    """A stack with the output projection after it."""

    def __init__(self, vocabulary: int, sizes: tuple[int, int, int, int], length: int, dropout: float) -> None:
        super().__init__(DecoderLayer, vocabulary, sizes, length, dropout)
        self.fc = nn.Linear(sizes[0], vocabulary)

    def forward(self, ids: Tensor, *rest: Tensor) -> Tensor:
        """Score every token. *Shape:* (batch_size, seq_len)."""
        return self.fc(super().forward(ids, *rest))


class Vanilla(nn.Module):
    """The document's `Transformer`."""

    def __init__(
        self, vocabulary: int, sizes: tuple[int, int, int, int], length: int, dropout: float = 0.0, padding: int = 0
    ) -> None:
        super().__init__()
        self.encoder = Stack(EncoderLayer, vocabulary, sizes, length, dropout)
        self.decoder = Decoder(vocabulary, sizes, length, dropout)
        self.src_pad_idx = self.trg_pad_idx = padding

    def forward(self, src: Tensor, trg: Tensor) -> Tensor:
        """Score every target token. *Shape:* (batch_size, source_len) and (batch_size, target_len)."""
        src_mask = (src != self.src_pad_idx).unsqueeze(1).unsqueeze(2)
        past = torch.tril(torch.ones(trg.shape[1], trg.shape[1])).bool().to(trg.device)
        trg_mask = past & (trg != self.trg_pad_idx).unsqueeze(1).unsqueeze(2)
        return self.decoder(trg, self.encoder(src, src_mask), trg_mask, src_mask)

    def generate(self, src: Tensor, start: int, steps: int) -> Tensor:
        """Write greedily, with the whole prefix for every token, as the document does. *Shape:* as src."""
        trg = torch.full((src.shape[0], 1), start, device=src.device)
        for _ in range(steps):
            trg = torch.cat([trg, self(src, trg)[:, -1:].argmax(-1)], dim=1)
        return trg
