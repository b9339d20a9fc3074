"""Causal convolutions over a few tokens, per channel, and the gated short convolution."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.cache_utils import LinearAttentionLayer

from ..configuration import ZooConfig
from ..parts import option
from .base import Mixer


class CausalConvolution(nn.Conv1d):
    """A convolution over a token and the `length - 1` before it, one filter a channel."""

    def __init__(self, width: int, length: int, bias: bool = False) -> None:
        super().__init__(width, width, length, padding=length - 1, groups=width, bias=bias)

    def init_weights(self) -> None:
        """Draw filters as PyTorch does: uniform, bounded by 1 / sqrt(length)."""
        bound = self.kernel_size[0] ** -0.5
        init.uniform_(self.weight, -bound, bound)

    def forward(
        self, states: Tensor, past: LinearAttentionLayer | None = None, is_token: Tensor | None = None
    ) -> Tensor:
        """Filter every channel of (batch_size, seq_len, width), after the tokens in the cache, which is updated."""
        seq_len, channels = states.shape[1], states.transpose(1, 2)
        if past is not None:
            channels = past.update_conv_state(channels, conv_kernel_size=self.kernel_size[0])
        filtered = super().forward(channels)[..., : channels.shape[-1]]
        if past is not None and is_token is not None:
            keep_last_tokens(past, channels, is_token)  # after the filter: a cache that can be cropped holds `channels`
        return filtered[..., -seq_len:].transpose(1, 2)


def keep_last_tokens(past: LinearAttentionLayer, channels: Tensor, is_token: Tensor) -> None:
    """Keep the last tokens of channels, (batch_size, width, key_len), in the cache, not the last positions."""
    length = past.conv_states[0].shape[-1]
    padding = (~is_token).sum(dim=1, keepdim=True)
    last = channels.shape[-1] - padding + torch.arange(length, device=channels.device)  # in what is longer by `length`
    past.conv_states[0].copy_(F.pad(channels, (length, 0)).gather(2, last[:, None].expand(-1, channels.shape[1], -1)))


class ShortConvolution(Mixer):
    """A convolution over `conv_L_cache` tokens between two gates, `c * conv(b * x)` (Liquid AI 2025, LFM2, section 2).

    Args:
        config: Supplies the width and the options; `conv_bias` is for all three maps.
        layer_idx: The layer's place.
    """

    layer_type = "conv"
    options: ClassVar[dict[str, Any]] = {"conv_L_cache": 3, "conv_bias": False}
    least: ClassVar[dict[str, int]] = {"conv_L_cache": 1}

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        length, bias = (option(config, type(self), name) for name in ("conv_L_cache", "conv_bias"))
        self.in_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=bias)
        self.conv = CausalConvolution(config.hidden_size, length, bias)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=bias)
        self.drawn_as = ("short convolution", f"over {length} tokens, between two gates{'' if bias else ', no biases'}")

    def mix(self, hidden_states: Tensor, past: LinearAttentionLayer | None, is_token: Tensor | None = None) -> Tensor:
        before, after, values = self.in_proj(hidden_states).chunk(3, dim=-1)
        return self.out_proj(after * self.conv(before * values, past, is_token))
