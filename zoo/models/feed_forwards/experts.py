"""Gated feed-forward networks (experts), a few of them per token."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.fast.experts import aligned, experts_function
from zoo.fast.modules import Dropout, Identity
from zoo.models.configuration import ZooConfig
from zoo.models.layers import build_activation
from zoo.models.norms import build_norm


class Experts(nn.Module):
    """Gated networks with stacked weights, in the layout and under the names of transformers' classes."""

    # Attributes that transformers' functions read.
    has_gate = is_concatenated = True
    is_transposed = has_post_expert_norm = _is_expert_parallel = False

    def __init__(self, config: ZooConfig, num_experts: int, num_experts_per_tok: int, inner_size: int) -> None:
        super().__init__()
        self.config = config
        self.num_experts = num_experts
        self.num_experts_per_tok = num_experts_per_tok
        self.has_bias = config.mlp_bias
        self.gate_up_proj = nn.Parameter(torch.empty(num_experts, 2 * inner_size, config.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, config.hidden_size, inner_size))
        self.gate_up_proj_bias = nn.Parameter(torch.empty(num_experts, 2 * inner_size)) if self.has_bias else None
        self.down_proj_bias = nn.Parameter(torch.empty(num_experts, config.hidden_size)) if self.has_bias else None
        self.act_fn = build_activation(config.hidden_act)
        self.dropout = Dropout(config.activation_dropout)
        self.norm = build_norm(config, inner_size) if config.mlp_inner_norm else Identity()

    def init_weights(self) -> None:
        """Set all biases to zero; the scheme initializes the weights."""
        for bias in (self.gate_up_proj_bias, self.down_proj_bias):
            if bias is not None:
                init.zeros_(bias)

    @property
    def parallel_styles(self) -> dict[str, str]:
        """Styles of tensor parallelism by inner channels; none where biases or a norm need all of them."""
        if type(self) is not Experts or self.has_bias or not isinstance(self.norm, Identity):
            return {}
        return {"gate_up_proj": "packed_colwise", "down_proj": "rowwise", "": "moe_tp_experts"}

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Sum the weighted outputs of every token's experts. *Shape:* (num_tokens, hidden_size)."""
        run = experts_function(self, Experts.one_by_one, hidden_states)
        return run(self, hidden_states, top_k_index, top_k_weights)

    def one_by_one(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Reference implementation: one expert after the other. Arguments as for `forward`."""
        mixed = torch.zeros_like(hidden_states)
        for expert in range(self.num_experts):
            tokens, places = torch.where(top_k_index == expert)
            in_bias = None if self.gate_up_proj_bias is None else self.gate_up_proj_bias[expert]
            out_bias = None if self.down_proj_bias is None else self.down_proj_bias[expert]
            inner = self._apply_gate(F.linear(hidden_states[tokens], aligned(self.gate_up_proj[expert]), in_bias))
            outer = F.linear(inner, aligned(self.down_proj[expert]), out_bias) * top_k_weights[tokens, places, None]
            mixed = mixed.index_add(0, tokens, outer.to(mixed.dtype))
        return mixed

    def _apply_gate(self, gate_up: Tensor) -> Tensor:
        """The function between the two projections: transformers' functions call it by this name."""
        gate, up = gate_up.chunk(2, dim=-1)
        return self.norm(self.dropout(self.act_fn(gate) * up))
