"""Positions: terms added to embeddings and to scores, and rotations of queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .config import Config


def sinusoids(positions: Tensor, config: Config) -> Tensor:
    """Sines and cosines of each position (Vaswani et al. 2017, section 3.5). *Shape:* (length,) -> (length, width)."""
    exponents = torch.arange(0, config.hidden_size, 2, device=positions.device) / config.hidden_size
    angles = positions[:, None].float() / config.sinusoidal_theta**exponents
    if config.position == "sinusoidal-halves":
        return torch.cat([angles.sin(), angles.cos()], dim=-1)[:, : config.hidden_size]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[:, : config.hidden_size]


def rotary(positions: Tensor, theta: float, config: Config) -> tuple[Tensor, Tensor]:
    """Cosines and sines of angles by position (Su et al. 2021, RoFormer, equation 15). *Shape:* (length, pairs)."""
    width = config.rotary_dim if config.rotary_dim < config.head_dim else config.head_dim
    exponents = torch.arange(0, width, 2, device=positions.device) / width
    angles = positions[:, None].float() * theta**-exponents
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor], config: Config) -> Tensor:
    """Turn the pairs of features of each head. *Shape:* (batch, heads, length, head_dim), unchanged."""
    cos, sin = (table.to(x.dtype) for table in rotation)
    if config.rotary_dim < config.head_dim:
        # A part of each head is rotated, the rest carries no position.
        x, rest = x[..., : config.rotary_dim], x[..., config.rotary_dim :]
    if config.position == "rotary-interleaved":
        # Pairs are neighbours, as in the paper.
        first, second = x[..., 0::2], x[..., 1::2]
        x = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)
    else:
        # Feature j is paired with feature j + rotary_dim / 2, as in GPT-NeoX and Llama.
        first, second = x.chunk(2, dim=-1)
        x = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    if config.rotary_dim < config.head_dim:
        return torch.cat([x, rest], dim=-1)
    return x


def alibi(queries: Tensor, keys: Tensor, config: Config) -> Tensor:
    """Minus slope times distance for each head (Press et al. 2021, section 3). *Shape:* (heads, queries, keys)."""
    # 2^(-8/n), 2^(-16/n), ... for n heads; every other slope of 2n heads in addition if n is no power of two.
    power = 2 ** math.floor(math.log2(config.num_attention_heads))
    between = torch.arange(config.num_attention_heads - power, device=keys.device) + 0.5
    slopes = 2 ** (-8 / power * torch.cat([torch.arange(1, power + 1, device=keys.device), between]))
    return -slopes[:, None, None] * (queries[:, None] - keys).abs()


class RelativeBuckets(nn.Embedding):
    """A learned scalar for each head and bucket of distances (Raffel et al. 2020, T5, section 2.1)."""

    def __init__(self, config: Config, is_causal: bool) -> None:
        super().__init__(config.relative_attention_num_buckets, config.num_attention_heads)
        self.max_distance, self.is_causal = config.relative_attention_max_distance, is_causal

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The term added to scores. *Shape:* (heads, queries, keys)."""
        distance = keys - queries[:, None]
        if self.is_causal:
            side, offset, distance = self.num_embeddings, torch.tensor(0), (-distance).clamp(min=0)
        else:
            # Half of the buckets are for keys before the query, the other half for those after it.
            side = self.num_embeddings // 2
            offset, distance = (distance > 0).long() * side, distance.abs()
        # Half of a side's buckets hold one distance each, the others grow logarithmically.
        exact = side // 2
        growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (growth * (side - exact)).long()).clamp(max=side - 1)
        return self(offset + torch.where(distance < exact, distance, far)).permute(2, 0, 1)
