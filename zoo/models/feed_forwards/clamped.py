"""Experts with clamped gates and inputs, and with biases throughout: those of gpt-oss."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from zoo.base.errors import ConfigError
from zoo.models.configuration import ZooConfig
from zoo.models.parts import option

from .experts import Experts
from .mixture import MixtureOfExperts
from .routing import SoftmaxRouter


class BiasedRouter(SoftmaxRouter):
    """Router with a bias on the scores."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.bias = nn.Parameter(torch.empty(self.num_experts))

    def init_weights(self) -> None:
        super().init_weights()
        init.zeros_(self.bias)

    def score(self, hidden_states: Tensor) -> Tensor:
        """Score every expert."""
        return super().score(hidden_states) + self.bias


class ClampedExperts(Experts):
    """`down_proj(gate * sigmoid(swiglu_alpha * gate) * (up + 1))` with clamped gate and input."""

    def __init__(self, config: ZooConfig, num_experts: int, num_experts_per_tok: int, inner_size: int) -> None:
        super().__init__(config, num_experts, num_experts_per_tok, inner_size)
        del self.act_fn  # the gate's function is fixed
        self.alpha: float = option(config, ClampedMixtureOfExperts, "swiglu_alpha")
        self.limit: float = option(config, ClampedMixtureOfExperts, "swiglu_limit")

    def _apply_gate(self, gate_up: Tensor) -> Tensor:
        """The function between the two projections."""
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
        """Refuse invalid numbers of experts and bounds."""
        super().check_options(config)
        limit = option(config, cls, "swiglu_limit")
        if limit <= 0:
            raise ConfigError(f"swiglu_limit={limit} was given; it must be positive")
