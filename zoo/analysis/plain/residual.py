"""The residual connection around a sublayer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import Config, NoPlainForm
from .norms import Factors, build_norm


class LearnedScale(nn.Module):
    """Multiplication by learned weights."""

    def __init__(self, width: int, initial: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), initial))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


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
        if config.norm_placement in ("sandwich", "res-post") or norms_branch:
            self.norm_branch = build_norm(config, config.hidden_size, config.layer_norm_eps)
        if config.norm_placement in ("post", "deepnorm"):
            self.norm_out = build_norm(config, config.hidden_size, config.layer_norm_eps)
        if config.residual_scaling == "layer-scale":
            self.scale = LearnedScale(config.hidden_size, config.layer_scale_init)
        elif config.residual_scaling == "rezero":
            self.scale = LearnedScale(1, 0.0)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Add what the sublayer computes to the stream. *Shape:* (batch, length, hidden_size), unchanged."""
        if self.config.norm_placement in ("pre", "sandwich"):
            # Pre-norm: the stream itself is never normalised (Xiong et al. 2020, figure 1 (b)).
            branch = sublayer(x if self.is_first else self.norm_in(x))
        else:
            branch = sublayer(x)
        if self.config.norm_placement in ("sandwich", "res-post") or self.norms_branch:
            # The branch is normalised before it joins the stream.
            branch = self.norm_branch(branch)
        if self.config.residual_scaling == "layer-scale":
            # One weight per channel, small at first (Touvron et al. 2021, CaiT, section 2).
            branch = self.scale(branch)
        elif self.config.residual_scaling == "rezero":
            # One weight, zero at first (Bachlechner et al. 2020, ReZero, section 3).
            branch = self.scale(branch)
        if self.drops_skip:
            # The original's defect: dropout falls on the stream instead of on the branch.
            x = F.dropout(x, self.config.dropout, self.training)
        elif self.config.dropout and self.drops:
            branch = F.dropout(branch, self.config.dropout, self.training)
        if self.config.norm_placement == "post":
            # Post-norm: the sum is normalised (Vaswani et al. 2017, section 3.1).
            return self.norm_out(x + branch)
        if self.config.norm_placement == "deepnorm":
            # The stream is scaled up before the sum (Wang et al. 2022, DeepNet, figure 2).
            return self.norm_out(x * self.config.deepnorm_alpha + branch)
        return x + branch


class NormalizedResidual(nn.Module):
    """A learned step on the hypersphere towards what the sublayer computes (nGPT, equations 10 and 11)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        if config.norm_placement != "post" or config.residual_scaling is not None:
            raise NoPlainForm("norm_placement")
        self.norm_branch = build_norm(config, config.hidden_size, config.layer_norm_eps)
        self.norm_out = build_norm(config, config.hidden_size, config.layer_norm_eps)
        self.rates = Factors(config.hidden_size, 0.05, config.hidden_size**-0.5)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Move the stream. *Shape:* (batch, length, hidden_size), unchanged."""
        branch = self.norm_branch(sublayer(x))
        if self.config.dropout:
            branch = F.dropout(branch, self.config.dropout, self.training)
        return self.norm_out(x + self.rates().abs() * (branch - x))


class ConnectionWeights(nn.Module):
    """How streams are read, written and mixed, in part computed of the token (Zhu et al. 2024, equations 10 to 13)."""

    def __init__(self, config: Config, stream: int) -> None:
        super().__init__()
        self.read = nn.Parameter(torch.eye(config.num_streams)[stream].clone())
        self.write = nn.Parameter(torch.ones(config.num_streams))
        self.mix = nn.Parameter(torch.eye(config.num_streams))
        self.weight = nn.Parameter(torch.zeros(2 + config.num_streams, config.hidden_size))
        self.scale = nn.Parameter(torch.full((2,), 0.01))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """*Shape:* (batch, length, streams, hidden_size) -> twice (..., streams), and (..., streams, streams)."""
        read, write, mix = torch.tanh(x @ self.weight.T).split((1, 1, x.shape[-2]), dim=-1)
        read, write = self.scale[0] * read.squeeze(-1), self.scale[1] * write.squeeze(-1)
        return read + self.read, write + self.write, self.scale[0] * mix + self.mix


class HyperConnections(nn.Module):
    """Several streams, which sublayers read, write and mix (Zhu et al. 2024, Hyper-Connections, section 2)."""

    def __init__(self, config: Config, stream: int) -> None:
        super().__init__()
        self.config = config
        if config.norm_placement != "pre" or config.residual_scaling is not None:
            raise NoPlainForm("norm_placement")
        self.norm_streams = build_norm(config, config.hidden_size, config.layer_norm_eps)
        self.weights = ConnectionWeights(config, stream)
        self.norm_in = build_norm(config, config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Write to the streams. *Shape:* (batch, length, streams, hidden_size), unchanged."""
        read, write, mix = self.weights(self.norm_streams(x))
        branch = sublayer(self.norm_in((read[..., None, :] @ x).squeeze(-2)))
        if self.config.dropout:
            branch = F.dropout(branch, self.config.dropout, self.training)
        return mix.mT @ x + write[..., None] * branch[..., None, :]


def build_residual(
    config: Config,
    place: int,
    norms_branch: bool = False,
    drops_skip: bool = False,
    drops: bool = True,
    is_first: bool = False,
) -> nn.Module:
    """The residual connection that the configuration names."""
    if config.residual == "hyper-connections":
        return HyperConnections(config, place % config.num_streams)
    if config.residual == "normalized":
        return NormalizedResidual(config)
    if config.residual not in ("plain", "no-first-norm"):
        raise NoPlainForm("residual")
    return Residual(config, norms_branch=norms_branch, drops_skip=drops_skip, drops=drops, is_first=is_first)
