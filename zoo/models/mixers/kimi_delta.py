"""Kimi delta attention: the gated delta rule with a rate of forgetting for every channel."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.cache_utils import LinearAttentionLayer

from ..configuration import ZooConfig
from ..norms import RMSNorm
from ..parts import option
from ..precision import at_least_float32, in_own_precision
from ..validation import require_at_least
from .base import Mixer
from .delta_net import draw_decays, memory_of, of_tokens, unit_heads
from .delta_rule import channel_gated_delta_rule
from .short_convolution import CausalConvolution


class KimiDeltaAttention(Mixer):
    """Linear attention by the delta rule, forgetting by channel (Kimi Team 2025, Kimi Linear, section 3).

    Queries, keys and values pass a short convolution and SiLU; queries and keys are normalised. Rates of forgetting,
    one for every channel of a key, and the gates (sigmoids that multiply the normalised output) are projections of the
    token with the rank of a head's width. `linear_num_heads` and `linear_head_dim` are attention's where they are 0.
    """

    parameter_roles: ClassVar[dict[str, str]] = {"A_log": "scalar"}
    input_grows: ClassVar[dict[str, bool]] = {"f_b_proj.weight": False, "g_b_proj.weight": False}

    layer_type = "linear_attention"
    options: ClassVar[dict[str, Any]] = {"linear_num_heads": 0, "linear_head_dim": 0, "linear_conv_kernel_dim": 4}

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.num_heads, self.head_dim = kimi_sizes(config)
        width = self.num_heads * self.head_dim
        self.in_proj_qkv = nn.Linear(config.hidden_size, 3 * width, bias=False)
        self.in_proj_b = nn.Linear(config.hidden_size, self.num_heads, bias=False)
        self.f_a_proj = nn.Linear(config.hidden_size, self.head_dim, bias=False)
        self.f_b_proj = nn.Linear(self.head_dim, width, bias=False)
        self.g_a_proj = nn.Linear(config.hidden_size, self.head_dim, bias=False)
        self.g_b_proj = nn.Linear(self.head_dim, width, bias=False)
        self.conv1d = CausalConvolution(3 * width, option(config, type(self), "linear_conv_kernel_dim"))
        self.A_log = nn.Parameter(torch.empty(self.num_heads))
        self.dt_bias = nn.Parameter(torch.empty(width))
        self.norm = RMSNorm(self.head_dim, config)
        self.out_proj = nn.Linear(width, config.hidden_size, bias=False)
        heads = f"{self.num_heads} heads of {self.head_dim}"
        self.drawn_as = ("Kimi delta attention", f"{heads}, convolution over {self.conv1d.kernel_size[0]}")

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        super().check_options(config)
        numbers = {name: option(config, cls, name) for name in cls.options}
        require_at_least(1, linear_conv_kernel_dim=numbers.pop("linear_conv_kernel_dim"))
        require_at_least(0, **numbers)

    def init_weights(self) -> None:
        """Draw rates of decay as gated DeltaNet does."""
        draw_decays(self.A_log, self.dt_bias)

    def mix(self, hidden_states: Tensor, past: LinearAttentionLayer | None, is_token: Tensor | None = None) -> Tensor:
        mixed = F.silu(self.conv1d(self.in_proj_qkv(hidden_states), past, is_token))
        strength, decay = self.in_proj_b(hidden_states), self.f_b_proj(self.f_a_proj(hidden_states))
        with in_own_precision(hidden_states.device):
            precise = at_least_float32(hidden_states.dtype)
            query, key, value = mixed.to(precise).chunk(3, dim=-1)
            query, key = (unit_heads(states, self.num_heads) for states in (query, key))
            rate = self.A_log.to(precise).exp()[:, None, None]
            decay = -rate * self.heads(of_tokens(is_token, F.softplus(decay.to(precise) + self.dt_bias)))
            strength = of_tokens(is_token, strength.to(precise).sigmoid()).transpose(1, 2)
            read, state = channel_gated_delta_rule(
                query * self.head_dim**-0.5, key, self.heads(value), decay, strength, memory_of(past)
            )
        if past is not None:
            past.update_recurrent_state(state)
        read = self.norm(read.transpose(1, 2).to(hidden_states.dtype))
        gate = self.g_b_proj(self.g_a_proj(hidden_states)).sigmoid().view_as(read)
        return self.out_proj((read * gate).flatten(2))

    def heads(self, states: Tensor) -> Tensor:
        """Split into heads: (batch_size, linear_num_heads, seq_len, linear_head_dim)."""
        return states.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def kimi_sizes(config: ZooConfig) -> tuple[int, int]:
    """Number of heads, and the width of a head."""
    heads, width = (option(config, KimiDeltaAttention, f"linear_{name}") for name in ("num_heads", "head_dim"))
    return heads or config.num_attention_heads, width or config.head_dim
