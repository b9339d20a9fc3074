"""The residual connection around a sublayer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config
from .norms import Factors, build_norm


class LearnedScale(nn.Module):
    """Multiplication by learned weights."""

    def __init__(self, width: int, initial: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), initial))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def skipped(x: Tensor, config: Config) -> Tensor:
    """The skip connection, which may be scaled up (Wang et al. 2022, DeepNet, figure 2)."""
    return x * config.deepnorm_alpha if config.norm_placement == "deepnorm" else x


def summed(x: Tensor, owner: Any, config: Config) -> Tensor:
    """The sum of stream and branch, which may be normalised (Vaswani et al. 2017, section 3.1)."""
    return owner.norm_out(x) if config.norm_placement in ("post", "deepnorm") else x


class Residual(nn.Module):
    """The residual connection around a sublayer."""

    def __init__(
        self,
        config: Config,
        norms_branch: bool = False,
        drops_skip: bool = False,
        drops: bool = True,
        is_first: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.norms_branch = norms_branch
        self.drops_skip = drops_skip
        self.drops = drops
        self.is_first = is_first
        if config.norm_placement in ("pre", "sandwich") and not is_first:
            self.norm_in = build_norm(config, config.hidden_size, config.layer_norm_eps)
        if config.norm_placement in ("sandwich", "res-post") or norms_branch or config.residual == "normalized":
            self.norm_branch = build_norm(config, config.hidden_size, config.layer_norm_eps)
        if config.norm_placement in ("post", "deepnorm") or config.residual == "normalized":
            self.norm_out = build_norm(config, config.hidden_size, config.layer_norm_eps)
        if config.residual == "normalized":
            self.rates = Factors(config.hidden_size, 0.05, config.hidden_size**-0.5)
        if config.residual_scaling == "layer-scale":
            self.scale = LearnedScale(config.hidden_size, config.layer_scale_init)
        elif config.residual_scaling == "rezero":
            self.scale = LearnedScale(1, 0.0)

    def computed(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute the branch, before dropout. *Shape:* (batch, length, hidden_size), unchanged."""
        if self.config.norm_placement in ("pre", "sandwich"):
            # Pre-norm: the stream itself is never normalised (Xiong et al. 2020, figure 1 (b)).
            branch = sublayer(x if self.is_first else self.norm_in(x))
        else:
            branch = sublayer(x)
        if (
            self.config.norm_placement in ("sandwich", "res-post")
            or self.norms_branch
            or self.config.residual == "normalized"
        ):
            # The branch is normalised before it joins the stream.
            branch = self.norm_branch(branch)
        if self.config.residual_scaling == "layer-scale":
            # One weight per channel, small at first (Touvron et al. 2021, CaiT, section 2).
            branch = self.scale(branch)
        elif self.config.residual_scaling == "rezero":
            # One weight, zero at first (Bachlechner et al. 2020, ReZero, section 3).
            branch = self.scale(branch)
        return branch

    def branch(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute the branch. *Shape:* (batch, length, hidden_size), unchanged."""
        branch = self.computed(x, sublayer)
        if self.config.dropout and self.drops:
            branch = F.dropout(branch, self.config.dropout, self.training)
        return branch

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Add what the sublayer computes to the stream. *Shape:* (batch, length, hidden_size), unchanged."""
        branch = self.computed(x, sublayer)
        if self.drops_skip:
            # The original's defect: dropout falls on the stream instead of on the branch.
            x = F.dropout(x, self.config.dropout, self.training)
        elif self.config.dropout and self.drops:
            branch = F.dropout(branch, self.config.dropout, self.training)
        if self.config.residual == "normalized":
            # A learned step on the hypersphere towards what the sublayer computes (nGPT, equations 10 and 11).
            x = skipped(x, self.config)
            return self.norm_out(x + self.rates().abs() * (branch - x))
        if self.config.norm_placement == "post":
            # Post-norm: the sum is normalised (Vaswani et al. 2017, section 3.1).
            return self.norm_out(x + branch)
        if self.config.norm_placement == "deepnorm":
            # The stream is scaled up before the sum (Wang et al. 2022, DeepNet, figure 2).
            return self.norm_out(x * self.config.deepnorm_alpha + branch)
        return x + branch


class BareSublayer(nn.Module):
    """The place of a residual connection."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        # The original's defect: neither a sum nor a norm.
        return sublayer(x)
