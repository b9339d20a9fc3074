"""The residual connection around a sublayer, with every norm placement as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import initialization as init

from zoo.fast.modules import Dropout, Identity

from .choices import NormPlacement, ResidualScaling
from .configuration import ZooConfig
from .norms import build_norm
from .parts import RESIDUALS
from .validation import require_own_layers

SLOTS: dict[str, tuple[str, ...]] = {
    NormPlacement.POST: ("norm_out",),
    NormPlacement.PRE: ("norm_in",),
    NormPlacement.SANDWICH: ("norm_in", "norm_branch"),
    NormPlacement.RES_POST: ("norm_branch",),
    NormPlacement.DEEPNORM: ("norm_out",),
    NormPlacement.NONE: (),
}
"""Which of a residual's norm slots each placement fills."""


class Scale(nn.Module):
    """Multiplication by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Scale. *Shape:* any, unchanged."""
        return hidden_states * self.factor

    def extra_repr(self) -> str:
        return f"{self.factor:.4g}"


class LearnedScale(nn.Module):
    """Multiplication by `width` learned weights: one a channel, or 1 for all."""

    def __init__(self, width: int, initial: float) -> None:
        super().__init__()
        self.initial = initial
        self.weight = nn.Parameter(torch.empty(width))

    def init_weights(self) -> None:
        init.constant_(self.weight, self.initial)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Scale. *Shape:* (..., hidden_size), unchanged."""
        return hidden_states * self.weight

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, initial={self.initial:.4g}"


class Stream(nn.Module):
    """The residual stream from layer to layer: how it begins, and by its forward how it becomes hidden states again."""

    grows: ClassVar[bool] = False  # Whether layers add vectors to it

    def open(self, hidden_states: Tensor) -> Tensor:
        """The stream for the first layer: embedded tokens, or (batch_size, seq_len, num_vectors, hidden_size)."""
        return hidden_states


class SingleStream(Identity, Stream):
    """One vector a token, which the embeddings are and the last layer leaves."""


class Residual(nn.Module):
    """`norm_out(skip(x) + dropout(scale(norm_branch(sublayer(norm_in(x))))))`.

    Every slot is the identity unless it is filled: which are, is what distinguishes post-norm from pre-norm, sandwich,
    DeepNorm, LayerScale and ReZero. All of them share one forward.

    Args:
        norm_in: Norm before the sublayer.
        norm_branch: Norm after the sublayer.
        norm_out: Norm after the sum.
        skip: Module on the skip connection.
        scale: Module on the branch, after its norm.
        dropout: Dropout on the branch, last before the sum.

    Attributes:
        stream_class: Class of what opens and closes the stream, built from a configuration.
    """

    stream_class: ClassVar[type[Any]] = SingleStream

    def __init__(
        self,
        norm_in: nn.Module | None = None,
        norm_branch: nn.Module | None = None,
        norm_out: nn.Module | None = None,
        skip: nn.Module | None = None,
        scale: nn.Module | None = None,
        dropout: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.norm_in = norm_in or Identity()
        self.norm_branch = norm_branch or Identity()
        self.norm_out = norm_out or Identity()
        self.skip = skip or Identity()
        self.scale = scale or Identity()
        self.dropout = dropout or Identity()

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        """Build one connection from the modules in its slots; a part that needs more overrides this."""
        return cls(**slots)

    @classmethod
    def build_stream(cls, config: ZooConfig) -> Stream:
        """Build what opens and closes the stream of a stack."""
        return cls.stream_class(config)

    def __call__(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Apply the sublayer inside the residual connection. Arguments as for `forward`."""
        # accelerate moves what has a `to` among a module's arguments; a bound method has none.
        function = sublayer.__call__ if isinstance(sublayer, nn.Module) else sublayer
        return super().__call__(hidden_states, function, *args, **kwargs)

    def forward(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        """Apply the sublayer inside the residual connection.

        Args:
            hidden_states: The residual stream. *Shape:* (batch_size, seq_len, hidden_size)
            sublayer: Maps the normed stream to the branch, or to a tuple that begins with it.
        """
        branch = self.branch(hidden_states, sublayer, *args, **kwargs)
        return self.norm_out(self.skip(hidden_states) + branch)

    def added(self, skip: Tensor, branch: Tensor) -> Tensor:
        """The update of the stream, which the skip connection carries on. *Shape:* as both arguments."""
        return branch

    def branch(self, hidden_states: Tensor, sublayer: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The branch that is added to the stream. Arguments as for `forward`."""
        branch = sublayer(self.norm_in(hidden_states), *args, **kwargs)
        branch = branch[0] if isinstance(branch, tuple) else branch
        return self.dropout(self.scale(self.norm_branch(branch)))


class NoFirstNormResidual(Residual):
    """The plain sum without a norm before the first sublayer, since the embeddings have one (ModernBERT)."""

    @classmethod
    def check_options(cls, config: ZooConfig) -> None:
        given, why = f"residual={config.residual!r}", "the first one has fewer norms"
        require_own_layers(config, given, why, "residual='plain'")

    @classmethod
    def build(cls, config: ZooConfig, layer_idx: int, opens_layer: bool, **slots: nn.Module) -> Residual:
        is_first = opens_layer and layer_idx == 0
        return cls(**{name: module for name, module in slots.items() if not (is_first and name == "norm_in")})


def build_residual(config: ZooConfig, layer_idx: int = 0, *, opens_layer: bool = False) -> Residual:
    slots: dict[str, nn.Module] = {slot: build_norm(config) for slot in SLOTS[config.norm_placement]}
    if config.norm_placement == NormPlacement.DEEPNORM:
        slots["skip"] = Scale(deepnorm_constants(config)[0])
    if config.residual_scaling == ResidualScaling.LAYER_SCALE:
        slots["scale"] = LearnedScale(config.hidden_size, config.layer_scale_init)
    elif config.residual_scaling == ResidualScaling.REZERO:
        slots["scale"] = LearnedScale(1, 0.0)
    slots["dropout"] = Dropout(config.dropout)
    return RESIDUALS.get(config.residual).build(config, layer_idx, opens_layer, **slots)


def deepnorm_constants(config: ZooConfig) -> tuple[float, float]:
    """DeepNorm's skip scale alpha and initialisation gain beta (Wang et al. 2022, table 1)."""
    depth = config.num_hidden_layers
    if not config.is_encoder_decoder:
        return (2 * depth) ** 0.25, (8 * depth) ** -0.25
    if config.is_decoder:
        return (3 * depth) ** 0.25, (12 * depth) ** -0.25
    mixed = (depth**4 * config.decoder_layers) ** (1 / 16)
    return 0.81 * mixed, 0.87 / mixed
