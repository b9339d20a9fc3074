"""Gated DeltaNet: linear attention with a decaying memory and the delta rule."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.cache_utils import LinearAttentionLayer

from zoo.base.errors import ConfigError, InputError

from ..configuration import ZooConfig
from ..norms import RMSNorm
from ..parts import option
from ..precision import at_least_float32, in_own_precision
from .base import Mixer
from .delta_rule import channel_gated_delta_rule, gated_delta_rule
from .short_convolution import CausalConvolution

DECAYS = (1.0, 16.0)  # Between which a head's rate of decay is drawn

STEPS = (0.001, 0.1)
"""Between which what it is multiplied by for a token of zeros is drawn, evenly in its logarithm (Mamba 2)."""

NORM_EPS = 1e-6  # Added to the squared lengths of queries and keys

HEADS = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
"""Options that are attention's where they are 0."""


class GatedDeltaNet(Mixer):
    """Linear attention by the gated delta rule (Yang et al. 2024, Gated Delta Networks, section 3).

    Queries, keys and values pass a short convolution and SiLU; queries and keys are normalised; what the memory gives
    is normalised and multiplied by SiLU of a gate. `linear_num_key_heads`, `linear_num_value_heads`,
    `linear_key_head_dim` and `linear_value_head_dim` are attention's where they are 0. With
    `linear_allow_neg_eigval`, values are replaced by up to twice the difference (Grazzi et al. 2024).
    """

    parameter_roles: ClassVar[dict[str, str]] = {"A_log": "scalar"}

    layer_type = "linear_attention"
    options: ClassVar[dict[str, Any]] = {
        **dict.fromkeys(HEADS, 0),
        "linear_conv_kernel_dim": 4,
        "linear_allow_neg_eigval": False,
    }
    least: ClassVar[dict[str, int]] = {**dict.fromkeys(HEADS, 0), "linear_conv_kernel_dim": 1}

    def __init__(self, config: ZooConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.num_key_heads, self.num_value_heads, self.key_dim, self.value_dim = sizes(config)
        self.strongest = 2.0 if option(config, type(self), "linear_allow_neg_eigval") else 1.0
        keys, values = self.num_key_heads * self.key_dim, self.num_value_heads * self.value_dim
        self.widths = (keys, keys, values)
        self.in_proj_qkv = nn.Linear(config.hidden_size, sum(self.widths), bias=False)
        self.in_proj_z = nn.Linear(config.hidden_size, values, bias=False)
        self.in_proj_b = nn.Linear(config.hidden_size, self.num_value_heads, bias=False)
        self.in_proj_a = nn.Linear(config.hidden_size, self.num_value_heads, bias=False)
        self.conv1d = CausalConvolution(sum(self.widths), option(config, type(self), "linear_conv_kernel_dim"))
        self.A_log, self.dt_bias = (nn.Parameter(torch.empty(self.num_value_heads)) for _ in range(2))
        self.norm = RMSNorm(self.value_dim, config)
        self.out_proj = nn.Linear(values, config.hidden_size, bias=False)
        grouped = f", {self.num_key_heads} for queries and keys" if self.num_key_heads != self.num_value_heads else ""
        heads = f"{self.num_value_heads} heads of {self.key_dim} × {self.value_dim}{grouped}"
        self.drawn_as = ("gated delta rule", f"{heads}, convolution over {self.conv1d.kernel_size[0]}")

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        super().check_options(config)
        key_heads, value_heads, _, _ = sizes(config)
        if value_heads % key_heads:
            raise ConfigError(
                f"linear_num_key_heads={key_heads} does not divide linear_num_value_heads={value_heads}: "
                "every key head serves the same number of value heads"
            )

    def init_weights(self) -> None:
        draw_decays(self.A_log, self.dt_bias)

    def mix(self, hidden_states: Tensor, past: LinearAttentionLayer | None, is_token: Tensor | None = None) -> Tensor:
        mixed = F.silu(self.conv1d(self.in_proj_qkv(hidden_states), past, is_token))
        strength, decay = self.in_proj_b(hidden_states), self.in_proj_a(hidden_states)
        with in_own_precision(hidden_states.device):
            precise = at_least_float32(hidden_states.dtype)
            query, key, value = mixed.to(precise).split(self.widths, dim=-1)
            query, key = (unit_heads(states, self.num_key_heads, self.num_value_heads) for states in (query, key))
            value = value.unflatten(-1, (self.num_value_heads, -1)).transpose(1, 2)
            strength = self.strongest * strength.to(precise).sigmoid()
            decay = -self.A_log.to(precise).exp() * F.softplus(decay.to(precise) + self.dt_bias)
            decay, strength = (of_tokens(is_token, states).transpose(1, 2) for states in (decay, strength))
            read, state = gated_delta_rule(query * self.key_dim**-0.5, key, value, decay, strength, memory_of(past))
        if past is not None:
            past.update_recurrent_state(state)
        read = self.norm(read.transpose(1, 2).to(hidden_states.dtype))
        return self.out_proj((read * F.silu(self.in_proj_z(hidden_states).view_as(read))).flatten(2))


def unit_heads(states: Tensor, num_heads: int, repeated: int) -> Tensor:
    """Queries or keys as unit vectors per head, each repeated for the heads of values that it serves."""
    heads = states.unflatten(-1, (num_heads, -1)).transpose(1, 2).repeat_interleave(repeated // num_heads, dim=1)
    return heads * torch.rsqrt((heads * heads).sum(dim=-1, keepdim=True) + NORM_EPS)


def of_tokens(is_token: Tensor | None, states: Tensor) -> Tensor:
    """Set decays and strengths of padding to 0, which changes no memory."""
    return states if is_token is None else states * is_token.unsqueeze(-1)


def memory_of(past: LinearAttentionLayer | None) -> Tensor | None:
    """The memory in a layer of the cache, which cannot be cropped as the state of its convolution can, or None."""
    if past is None:
        return None
    past.crop = refuse_crop
    state: Tensor | None = past.recurrent_states[0]
    return state.clone() if state is not None and torch.is_grad_enabled() else state


def refuse_crop(tokens_to_remove: int) -> None:
    if tokens_to_remove:
        raise InputError("a cache with a memory gives no tokens back: read the text again, or give another assistant")


def draw_decays(rate: nn.Parameter, bias: nn.Parameter) -> None:
    """Draw rates of decay, and the biases that make steps of the drawn length (Gu and Dao 2023, section 3.6)."""
    init.uniform_(rate, *DECAYS)
    init.copy_(rate, rate.log())
    init.uniform_(bias, *map(math.log, STEPS))
    step = bias.exp()
    init.copy_(bias, step + torch.log(-torch.expm1(-step)))


def sizes(config: ZooConfig) -> tuple[int, ...]:
    """Number of key heads and of value heads, and the widths of a key and a value."""
    usual = (config.num_attention_heads,) * 2 + (config.head_dim,) * 2
    given = (option(config, GatedDeltaNet, name) for name in HEADS)
    return tuple(own or other for own, other in zip(given, usual, strict=True))


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
    least: ClassVar[dict[str, int]] = {"linear_num_heads": 0, "linear_head_dim": 0, "linear_conv_kernel_dim": 1}

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

    def init_weights(self) -> None:
        draw_decays(self.A_log, self.dt_bias)

    def mix(self, hidden_states: Tensor, past: LinearAttentionLayer | None, is_token: Tensor | None = None) -> Tensor:
        mixed = F.silu(self.conv1d(self.in_proj_qkv(hidden_states), past, is_token))
        strength, decay = self.in_proj_b(hidden_states), self.f_b_proj(self.f_a_proj(hidden_states))
        with in_own_precision(hidden_states.device):
            precise = at_least_float32(hidden_states.dtype)
            query, key, value = mixed.to(precise).chunk(3, dim=-1)
            query, key = (unit_heads(states, self.num_heads, self.num_heads) for states in (query, key))
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
