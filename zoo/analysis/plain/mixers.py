"""Token mixers of layers without attention, with a memory of constant size."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Cache
from .config import Config, NoPlainForm


def convolve(conv: nn.Conv1d, x: Tensor, cache: Cache | None) -> Tensor:
    """Filter each channel over a token and those just before it. *Shape:* (batch, length, channels), unchanged."""
    before = conv.kernel_size[0] - 1
    x = torch.cat([cache["before"], x], dim=1) if cache else F.pad(x, (0, 0, before, 0))
    if cache is not None:
        cache["before"] = x[:, x.shape[1] - before :]
    return conv(x.transpose(1, 2)).transpose(1, 2)


def delta_rule(
    queries: Tensor, keys: Tensor, values: Tensor, decay: Tensor, strength: Tensor, cache: Cache | None
) -> Tensor:
    """Read a memory that replaces the values of keys (Yang et al. 2024, equation 10). *Shape:* (batch, length, ...)."""
    # A matrix for each head. *Shape:* (batch, heads, width of keys, width of values).
    memory = torch.zeros_like(keys[:, 0, :, :, None] * values[:, 0, :, None])
    if cache is not None:
        memory = cache.get("memory", memory)
    read = []
    for place in range(queries.shape[1]):
        # S = a S + b k (v - (a S)^T k)^T, and o = S^T q.
        q, k, v = queries[:, place, :, None], keys[:, place, :, None], values[:, place, :, None]
        memory = memory * decay[:, place, :, :, None]
        memory = memory + strength[:, place, :, None, None] * k.mT @ (v - k @ memory)
        read.append((q @ memory).squeeze(2) * queries.shape[-1] ** -0.5)
    if cache is not None:
        cache["memory"] = memory
    return torch.stack(read, dim=1)


class ShortConvolution(nn.Module):
    """A convolution over a few tokens, between two gates (Liquid AI 2025, LFM2, section 2)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, length = config.hidden_size, config.conv_L_cache
        self.in_proj = nn.Linear(width, 3 * width, bias=config.conv_bias)
        self.conv = nn.Conv1d(width, width, length, groups=width, bias=config.conv_bias)
        self.out_proj = nn.Linear(width, width, bias=config.conv_bias)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Mix each token with those before it. *Shape:* (batch, length, hidden_size), unchanged."""
        before, after, values = self.in_proj(x).chunk(3, dim=-1)
        return self.out_proj(after * convolve(self.conv, before * values, cache))


class GatedDeltaNet(nn.Module):
    """A matrix memory that decays, and replaces the value stored for a key (Yang et al. 2024, Gated Delta Networks)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        values, heads = config.linear_num_value_heads * config.linear_value_head_dim, config.linear_num_value_heads
        width, length = 2 * keys + values, config.linear_conv_kernel_dim
        self.in_proj_qkv = nn.Linear(config.hidden_size, width, bias=False)
        self.in_proj_z = nn.Linear(config.hidden_size, values, bias=False)
        self.in_proj_b = nn.Linear(config.hidden_size, heads, bias=False)
        self.in_proj_a = nn.Linear(config.hidden_size, heads, bias=False)
        self.conv1d = nn.Conv1d(width, width, length, groups=width, bias=False)
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(1.0, 16.0).log())
        # The inverse of softplus, of steps between 0.001 and 0.1 (Gu and Dao 2023, section 3.6).
        step = torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = nn.RMSNorm(config.linear_value_head_dim, eps=config.layer_norm_eps)
        self.out_proj = nn.Linear(values, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Mix each token with those before it. *Shape:* (batch, length, hidden_size), unchanged."""
        config = self.config
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        values = config.linear_num_value_heads * config.linear_value_head_dim
        mixed = F.silu(convolve(self.conv1d, self.in_proj_qkv(x), cache))
        query, key, value = mixed.split([keys, keys, values], dim=-1)
        query, key = (y.unflatten(-1, (config.linear_num_key_heads, -1)) for y in (query, key))
        query, key = (y * torch.rsqrt(y.square().sum(dim=-1, keepdim=True) + 1e-6) for y in (query, key))
        repeats = config.linear_num_value_heads // config.linear_num_key_heads
        query, key = query.repeat_interleave(repeats, dim=2), key.repeat_interleave(repeats, dim=2)
        value = value.unflatten(-1, (config.linear_num_value_heads, -1))
        strength = self.in_proj_b(x).sigmoid()
        if config.linear_allow_neg_eigval:
            strength = 2 * strength
        decay = (-self.A_log.exp() * F.softplus(self.in_proj_a(x) + self.dt_bias)).exp()
        read = delta_rule(query, key, value, decay[..., None], strength, cache)
        z = self.in_proj_z(x).unflatten(-1, (config.linear_num_value_heads, -1))
        return self.out_proj((self.norm(read) * F.silu(z)).flatten(2))


class KimiDeltaAttention(nn.Module):
    """The delta rule with a decay rate per channel (Kimi Team 2025, Kimi Linear, section 3)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        heads, width = config.linear_num_heads, config.linear_num_heads * config.linear_head_dim
        self.in_proj_qkv = nn.Linear(config.hidden_size, 3 * width, bias=False)
        self.in_proj_b = nn.Linear(config.hidden_size, heads, bias=False)
        self.f_a_proj = nn.Linear(config.hidden_size, config.linear_head_dim, bias=False)
        self.f_b_proj = nn.Linear(config.linear_head_dim, width, bias=False)
        self.g_a_proj = nn.Linear(config.hidden_size, config.linear_head_dim, bias=False)
        self.g_b_proj = nn.Linear(config.linear_head_dim, width, bias=False)
        self.conv1d = nn.Conv1d(3 * width, 3 * width, config.linear_conv_kernel_dim, groups=3 * width, bias=False)
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(1.0, 16.0).log())
        # The inverse of softplus, of steps between 0.001 and 0.1 (Gu and Dao 2023, section 3.6).
        step = torch.empty(width).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = nn.RMSNorm(config.linear_head_dim, eps=config.layer_norm_eps)
        self.out_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Mix each token with those before it. *Shape:* (batch, length, hidden_size), unchanged."""
        heads = self.config.linear_num_heads
        mixed = F.silu(convolve(self.conv1d, self.in_proj_qkv(x), cache))
        query, key, value = (y.unflatten(-1, (heads, -1)) for y in mixed.chunk(3, dim=-1))
        query, key = (y * torch.rsqrt(y.square().sum(dim=-1, keepdim=True) + 1e-6) for y in (query, key))
        strength = self.in_proj_b(x).sigmoid()
        decay = F.softplus(self.f_b_proj(self.f_a_proj(x)) + self.dt_bias).unflatten(-1, (heads, -1))
        decay = (-self.A_log.exp()[:, None] * decay).exp()
        read = delta_rule(query, key, value, decay, strength, cache)
        gate = self.g_b_proj(self.g_a_proj(x)).sigmoid().unflatten(-1, (heads, -1))
        return self.out_proj((self.norm(read) * gate).flatten(2))


def build_mixer(config: Config) -> nn.Module:
    """The mixer that the configuration names, in place of attention."""
    if config.mixer == "short-conv":
        return ShortConvolution(config)
    if config.mixer == "kimi-delta-attention":
        return KimiDeltaAttention(config)
    if config.mixer == "gated-delta-net":
        return GatedDeltaNet(config)
    raise NoPlainForm("mixer")
