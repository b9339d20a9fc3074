"""Mixtures of experts: gated feed-forward networks, a few of them per token, and a router."""

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.base.errors import ConfigError
from zoo.fast.experts import aligned, experts_function
from zoo.fast.modules import Dropout, Identity
from zoo.models.configuration import ZooConfig
from zoo.models.context import EarlierLayers
from zoo.models.layers import GatedFeedForward
from zoo.models.norms import build_norm
from zoo.models.parts import ACTIVATIONS, option
from zoo.models.validation import require_own_layers

from .routing import Router, SigmoidRouter, SoftmaxRouter


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
        self.act_fn = ACTIVATIONS.get(config.hidden_act)()
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


class MixtureOfExperts(nn.Module):
    """Gated networks, a few per token, chosen by a softmax (Jiang et al. 2024, Mixtral, section 2.1).

    If `output_router_logits` is set, the loss of a language model contains `router_aux_loss_coef` times the
    load-balancing loss (Fedus et al. 2022, Switch Transformers, section 2.2), as in transformers' classes; `zoo train`
    sets it.
    """

    options: ClassVar[dict[str, Any]] = {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": None,
        "norm_topk_prob": True,
        "router_aux_loss_coef": 0.001,
        "output_router_logits": False,
        "first_k_dense_replace": 0,
    }
    least: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("num_experts", "num_experts_per_tok", "moe_intermediate_size"), 1),
        **dict.fromkeys(("router_aux_loss_coef", "first_k_dense_replace"), 0),
    }
    router_class: ClassVar[type[Router]] = SoftmaxRouter
    experts_class: ClassVar[type[Experts]] = Experts
    has_auxiliary_loss: ClassVar[bool] = True
    counts_tokens: ClassVar[bool] = False

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.router = self.router_class(config)
        width = inner_size(config)
        count, chosen = self.router.num_experts, self.router.num_experts_per_tok
        self.experts = self.experts_class(config, count, chosen, width)
        sizes = f"{config.hidden_size} → {width} → {config.hidden_size}"
        self.drawn_as = ("mixture of experts", f"{chosen} of {count}, each gated, {sizes}, {config.hidden_act}")

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int) -> nn.Module:
        """Build the sublayer of one layer: a dense gated network in the first `first_k_dense_replace`."""
        return (GatedFeedForward if layer_idx < option(config, cls, "first_k_dense_replace") else cls)(config)

    @classmethod
    def unread(cls, config: ZooConfig) -> tuple[str, ...]:
        """Settings that models with it do not read: the width of dense layers where there are none."""
        experts_have_own = getattr(config, "moe_intermediate_size", None) is not None
        return ("intermediate_size",) if experts_have_own and not option(config, cls, "first_k_dense_replace") else ()

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        count, chosen = (option(config, cls, name) for name in ("num_experts", "num_experts_per_tok"))
        if dense := option(config, cls, "first_k_dense_replace"):
            others = ("first_k_dense_replace=0", "feed_forward='gated', which weights saved with both fit")
            require_own_layers(config, f"first_k_dense_replace={dense}", "the first are dense", *others)
        if chosen > count:
            raise ConfigError(f"num_experts_per_tok={chosen} was given; it must be at most num_experts={count}")

    def forward(self, hidden_states: Tensor, earlier: EarlierLayers | None = None) -> Tensor:
        """Transform every position by its experts.

        Args:
            hidden_states: *Shape:* (batch_size, seq_len, hidden_size)
            earlier: Has `is_token` for a router that counts tokens, and keeps router logits if it has a place for them.
        """
        tokens = hidden_states.flatten(0, -2)
        counted = {"is_token": earlier.is_token} if self.counts_tokens and earlier is not None else {}
        logits, weights, experts = self.router(tokens, **counted)
        if earlier is not None and "router_logits" in earlier.kept:
            earlier.keep("router_logits", logits)
        return self.experts(tokens, experts, weights).view_as(hidden_states)


class SigmoidMixtureOfExperts(MixtureOfExperts):
    """Experts chosen by sigmoids and a balancing bias, with one shared by all tokens (DeepSeek-V3, section 2.1.2).

    Args:
        config: Supplies the sizes and the options; the shared expert is `n_shared_experts` times as wide as the others,
            and absent if that is 0 (MiniMax-M2).
    """

    options: ClassVar[dict[str, Any]] = {
        **{name: value for name, value in MixtureOfExperts.options.items() if name != "router_aux_loss_coef"},
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
        "balance_rate": 0.001,
    }
    least: ClassVar[dict[str, int]] = {
        **MixtureOfExperts.least,
        **{"n_shared_experts": 0, "n_group": 1, "topk_group": 1, "balance_rate": 0},
    }
    router_class: ClassVar[type[Router]] = SigmoidRouter
    has_auxiliary_loss: ClassVar[bool] = False
    counts_tokens: ClassVar[bool] = True

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.shared_experts: nn.Module | None = None
        if not (count := option(config, type(self), "n_shared_experts")):
            return
        shared = copy.copy(config)
        shared.intermediate_size = inner_size(config) * count
        self.shared_experts = GatedFeedForward(shared)
        self.drawn_as = (self.drawn_as[0], f"{self.drawn_as[1]}; next to a shared one of {shared.intermediate_size}")

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        super().check_options(config)
        count, groups, admitted = (option(config, cls, name) for name in ("num_experts", "n_group", "topk_group"))
        chosen = option(config, cls, "num_experts_per_tok")
        if admitted > groups or (groups > 1 and (count % groups or count // groups < 2)):
            raise ConfigError(
                f"n_group={groups} and topk_group={admitted} were given; groups must be equal, of two experts at "
                f"least, of num_experts={count}, and topk_group at most n_group"
            )
        if chosen > count // groups * admitted:
            raise ConfigError(f"num_experts_per_tok={chosen} was given; topk_group={admitted} has fewer experts")

    def forward(self, hidden_states: Tensor, earlier: EarlierLayers | None = None) -> Tensor:
        routed = super().forward(hidden_states, earlier)
        return routed if self.shared_experts is None else routed + self.shared_experts(hidden_states)


class SharedMixtureOfExperts(MixtureOfExperts):
    """Experts chosen by a softmax, with one shared by all tokens through a gate (Qwen team 2024, Qwen1.5-MoE).

    Args:
        config: Supplies the sizes and the options; `shared_expert_intermediate_size` is by default that of the others.
    """

    options: ClassVar[dict[str, Any]] = {**MixtureOfExperts.options, "shared_expert_intermediate_size": None}
    least: ClassVar[dict[str, int]] = {**MixtureOfExperts.least, "shared_expert_intermediate_size": 1}

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        shared = copy.copy(config)
        shared.intermediate_size = self.shared_size(config)
        self.shared_expert = GatedFeedForward(shared)
        self.shared_expert_gate = nn.Linear(config.hidden_size, 1, bias=False)
        width = shared.intermediate_size
        self.drawn_as = (self.drawn_as[0], f"{self.drawn_as[1]}; next to a shared one of {width}, which is gated")

    @staticmethod
    def shared_size(config: ZooConfig) -> int:
        given: int | None = getattr(config, "shared_expert_intermediate_size", None)
        return inner_size(config) if given is None else given

    def forward(self, hidden_states: Tensor, earlier: EarlierLayers | None = None) -> Tensor:
        gate = torch.sigmoid(self.shared_expert_gate(hidden_states))
        return super().forward(hidden_states, earlier) + gate * self.shared_expert(hidden_states)


def inner_size(config: ZooConfig) -> int:
    """Inner width of an expert: `moe_intermediate_size`, by default `intermediate_size`."""
    given: int | None = getattr(config, "moe_intermediate_size", None)
    return config.intermediate_size if given is None else given


class BiasedRouter(SoftmaxRouter):
    """Router with a bias on the scores."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.bias = nn.Parameter(torch.empty(self.num_experts))

    def init_weights(self) -> None:
        super().init_weights()
        init.zeros_(self.bias)

    def score(self, hidden_states: Tensor) -> Tensor:
        return super().score(hidden_states) + self.bias


class ClampedExperts(Experts):
    """`down_proj(gate * sigmoid(swiglu_alpha * gate) * (up + 1))` with clamped gate and input."""

    def __init__(self, config: ZooConfig, num_experts: int, num_experts_per_tok: int, inner_size: int) -> None:
        super().__init__(config, num_experts, num_experts_per_tok, inner_size)
        del self.act_fn  # the gate's function is fixed
        self.alpha: float = option(config, ClampedMixtureOfExperts, "swiglu_alpha")
        self.limit: float = option(config, ClampedMixtureOfExperts, "swiglu_limit")

    def _apply_gate(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return self.norm(self.dropout(gate * F.sigmoid(self.alpha * gate) * (up + 1)))


class ClampedMixtureOfExperts(MixtureOfExperts):
    """Experts chosen by a softmax, with gates clamped at `swiglu_limit` (OpenAI 2025, gpt-oss, section 2.1)."""

    options: ClassVar[dict[str, Any]] = {**MixtureOfExperts.options, "swiglu_alpha": 1.702, "swiglu_limit": 7.0}
    router_class = BiasedRouter
    experts_class = ClampedExperts

    @classmethod
    def unread(cls, config: ZooConfig) -> tuple[str, ...]:
        """Settings that models with it do not read: the gate is a sigmoid, steepened by `swiglu_alpha`."""
        return (*super().unread(config), "hidden_act")

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        super().check_options(config)
        limit = option(config, cls, "swiglu_limit")
        if limit <= 0:
            raise ConfigError(f"swiglu_limit={limit} was given; it must be positive")
