"""Positions: terms added to embeddings and to scores, and rotations of queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config, NoPlainForm


def sinusoids(positions: Tensor, width: int, kind: str, config: Config) -> Tensor:
    """Sines and cosines of each position (Vaswani et al. 2017, section 3.5). *Shape:* (..., length) -> (..., width)."""
    if "cosines-have-own-exponents" in config.quirks and kind == "sinusoidal":
        # The original's defect: odd column j has exponent j / d instead of the paper's (j - 1) / d.
        columns = torch.arange(width, device=positions.device)
        angles = positions[..., None].float() / config.sinusoidal_theta ** (columns / width)
        return torch.where(columns % 2 == 0, angles.sin(), angles.cos())
    exponents = torch.arange(0, width, 2, device=positions.device) / width
    angles = positions[..., None].float() / config.sinusoidal_theta**exponents
    if kind == "sinusoidal-halves":
        return torch.cat([angles.sin(), angles.cos()], dim=-1)[..., :width]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


def frequencies(positions: Tensor, theta: float, kind: str, config: Config) -> Tensor:
    """Rotation angle of each pair per position."""
    width = config.rotary_dim if config.rotary_dim < config.head_dim else config.head_dim
    exponents = torch.arange(0, width, 2, device=positions.device) / width
    if kind == "linear":
        # Positions are divided by a factor (Chen et al. 2023, Position Interpolation, equation 4).
        return 1 / theta**exponents / config.rope_factor
    if kind == "dynamic":
        # The base grows with the length beyond that of training.
        longest = (positions.amax(dim=-1, keepdim=True)[..., None] + 1).clamp(min=config.max_position_embeddings)
        growth = config.rope_factor * longest / config.max_position_embeddings - (config.rope_factor - 1)
        return 1 / (theta * growth ** (width / (width - 2))) ** exponents
    if kind == "yarn":
        # Short wavelengths are kept, long ones interpolated (Peng et al. 2023, YaRN, section 3.2).
        low, high = (
            width * math.log(config.rope_original_length / (turns * 2 * math.pi)) / (2 * math.log(theta))
            for turns in (config.rope_beta_fast, config.rope_beta_slow)
        )
        if config.rope_truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        pairs = torch.arange(width // 2, dtype=torch.float32, device=positions.device)
        ramp = ((pairs - low) / (high - low + (0.001 if low == high else 0))).clamp(0, 1)
        kept = 1 - ramp
        return 1 / (config.rope_factor * theta**exponents) * (1 - kept) + 1 / theta**exponents * kept
    if kind == "llama3":
        # Short wavelengths are kept, long ones scaled, those between interpolated (Llama 3.1).
        plain = 1 / theta**exponents
        wavelength = 2 * math.pi / plain
        low, high = config.rope_low_freq_factor, config.rope_high_freq_factor
        scaled = torch.where(wavelength > config.rope_original_length / low, plain / config.rope_factor, plain)
        smooth = (config.rope_original_length / wavelength - low) / (high - low)
        mixed = (1 - smooth) * scaled / config.rope_factor + smooth * scaled
        is_between = (wavelength >= config.rope_original_length / high) & (
            wavelength <= config.rope_original_length / low
        )
        return torch.where(is_between, mixed, scaled)
    if kind == "longrope":
        # Each wavelength has two factors, one for short and one for long texts (Ding et al. 2024, section 3).
        longest = positions.amax(dim=-1, keepdim=True)[..., None] + 1
        short, long = (torch.tensor(one) for one in (config.rope_short_factor, config.rope_long_factor))
        scale = torch.where(longest > config.rope_original_length, long, short)
        return 1 / (scale * theta**exponents)
    if kind == "proportional":
        # Only some pairs rotate; the others have frequency zero.
        turning = torch.arange(0, 2 * config.rope_turning_pairs, 2, device=positions.device) / config.head_dim
        still = torch.zeros(config.head_dim // 2 - config.rope_turning_pairs, device=positions.device)
        return torch.cat([1 / theta**turning, still]) / config.rope_factor
    raise NoPlainForm("rope_type")


def rotary(positions: Tensor, theta: float, kind: str, config: Config) -> tuple[Tensor, Tensor]:
    """Cosines and sines of angles by position (Su et al. 2021, RoFormer, equation 15). *Shape:* (length, pairs)."""
    if kind == "default":
        width = config.rotary_dim if config.rotary_dim < config.head_dim else config.head_dim
        exponents = torch.arange(0, width, 2, device=positions.device) / width
        angles = positions[..., None].float() * theta**-exponents
    else:
        angles = positions[..., None].float() * frequencies(positions, theta, kind, config)
    if config.position_skips_padding:
        angles = angles.unsqueeze(-3)
    if config.rope_attention_factor != 1.0 and kind != "default":
        # Scores grow slightly with the entropy of attention in long texts.
        return angles.cos() * config.rope_attention_factor, angles.sin() * config.rope_attention_factor
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor], config: Config) -> Tensor:
    """Rotate the feature pairs of each head. *Shape:* (batch, heads, length, head_dim), unchanged."""
    cos, sin = (table.to(x.dtype) for table in rotation)
    if config.rotary_dim < config.head_dim:
        # Only a part of each head is rotated.
        x, rest = x[..., : config.rotary_dim], x[..., config.rotary_dim :]
    if config.position == "rotary-interleaved":
        # Neighbouring features are a pair, as in the paper.
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
    """Minus slope times distance, per head (Press et al. 2021, section 3). *Shape:* (heads, queries, keys)."""
    # 2^(-8/n), 2^(-16/n), ... for n heads; every other slope of 2n heads in addition if n is no power of two.
    power = 2 ** math.floor(math.log2(config.num_attention_heads))
    between = torch.arange(config.num_attention_heads - power, device=keys.device) + 0.5
    slopes = 2 ** (-8 / power * torch.cat([torch.arange(1, power + 1, device=keys.device), between]))
    return -slopes[:, None, None] * (queries[:, None] - keys).abs()


def build_position(config: Config) -> nn.Module:
    """The position encoding of a plugin."""
    raise NoPlainForm("position")


class RelativeVectors(nn.Module):
    """A vector per bucket of distances, projected by attention (He et al. 2020, DeBERTa, section 3.1)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2 * config.relative_attention_num_buckets - 1, config.hidden_size))
        self.norm_weight = nn.Parameter(torch.ones(config.hidden_size))
        self.norm_bias = nn.Parameter(torch.zeros(config.hidden_size))
        self.eps = config.layer_norm_eps

    def forward(self) -> Tensor:
        return F.layer_norm(self.weight, self.norm_weight.shape, self.norm_weight, self.norm_bias, self.eps)


def bucket(distance: Tensor, config: Config) -> Tensor:
    """The row of each distance: one per small distance, then logarithmic (Samuel et al. 2023, section 3.2)."""
    half = config.relative_attention_num_buckets // 2
    far = distance.abs().clamp(half - 1, config.relative_attention_max_distance - 1).float() / half
    steps = torch.log(far) / math.log((config.relative_attention_max_distance - 1) / half) * (half - 1)
    signed = torch.where(distance.abs() <= half, distance, distance.sign() * (steps.ceil().long() + half))
    return signed + config.relative_attention_num_buckets - 1


class RelativeBuckets(nn.Embedding):
    """A learned scalar per head and bucket of distances (Raffel et al. 2020, T5, section 2.1)."""

    def __init__(self, config: Config, is_causal: bool) -> None:
        super().__init__(config.relative_attention_num_buckets, config.num_attention_heads)
        self.max_distance, self.is_causal = config.relative_attention_max_distance, is_causal

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The term added to scores. *Shape:* (heads, queries, keys)."""
        distance = keys - queries[:, None]
        if self.is_causal:
            side, offset, distance = self.num_embeddings, torch.tensor(0), (-distance).clamp(min=0)
        else:
            # Half of the buckets for keys before the query, half for keys after it.
            side = self.num_embeddings // 2
            offset, distance = (distance > 0).long() * side, distance.abs()
        # Half of a side's buckets hold one distance each, the others are logarithmic.
        exact = side // 2
        growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        far = (exact + (growth * (side - exact)).long()).clamp(max=side - 1)
        return self(offset + torch.where(distance < exact, distance, far)).permute(2, 0, 1)
