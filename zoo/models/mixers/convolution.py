"""Causal convolutions over a few tokens, a channel by itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.cache_utils import LinearAttentionLayer


class CausalConvolution(nn.Conv1d):
    """A convolution over a token and those just before it, one filter a channel.

    Args:
        length: Number of tokens that a filter sees.
    """

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
            if is_token is not None:
                keep_last_tokens(past, channels, is_token)
        filtered = super().forward(channels)[..., : channels.shape[-1]]
        return filtered[..., -seq_len:].transpose(1, 2)


def keep_last_tokens(past: LinearAttentionLayer, channels: Tensor, is_token: Tensor) -> None:
    """Keep the last tokens of channels, (batch_size, width, key_len), in the cache, not the last positions."""
    kept = past.conv_states[0]
    length = kept.shape[-1]
    padding = (~is_token).sum(dim=1, keepdim=True)
    last = channels.shape[-1] - padding + torch.arange(length, device=channels.device)  # in what is longer by `length`
    kept.copy_(F.pad(channels, (length, 0)).gather(2, last[:, None].expand(-1, channels.shape[1], -1)))
