"""A gated short convolution: tokens see those just before them, which costs no more in longer texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn
from transformers.cache_utils import LinearAttentionLayer

from ..parts import option
from ..validation import require_at_least
from .base import Mixer
from .convolution import CausalConvolution

if TYPE_CHECKING:
    from ..configuration import ZooConfig


class ShortConvolution(Mixer):
    """A convolution over `conv_L_cache` tokens between two gates, `c * conv(b * x)` (Liquid AI 2025, LFM2, section 2).

    Args:
        config: Supplies the width and the options; `conv_bias` is for all three maps.
        layer_idx: The layer's place.
    """

    layer_type = "conv"
    options: ClassVar[dict[str, Any]] = {"conv_L_cache": 3, "conv_bias": False}

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        length, bias = (option(config, type(self), name) for name in ("conv_L_cache", "conv_bias"))
        self.in_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=bias)
        self.conv = CausalConvolution(config.hidden_size, length, bias)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=bias)
        self.drawn_as = ("short convolution", f"over {length} tokens, between two gates{'' if bias else ', no biases'}")

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        """Refuse a length that there cannot be."""
        super().check_options(config)
        require_at_least(1, conv_L_cache=option(config, cls, "conv_L_cache"))

    def mix(self, hidden_states: Tensor, past: LinearAttentionLayer | None, is_token: Tensor | None = None) -> Tensor:
        """Convolve what passes the first gate. Arguments as in the base class."""
        before, after, values = self.in_proj(hidden_states).chunk(3, dim=-1)
        return self.out_proj(after * self.conv(before * values, past, is_token))
