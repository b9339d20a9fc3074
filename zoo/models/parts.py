"""The registries of interchangeable parts.

A part registered here, by the library or by a plugin, is available to every variant by its name:
`zoo.build("pre-norm", position="my-rope")`. The tables themselves import nothing heavy; their built-in contents are
registered when the modules beside this one are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zoo.base.errors import RegistrationError
from zoo.registry import VARIANTS, Registry

if TYPE_CHECKING:
    from torch import nn

    from .attention import Attention
    from .configuration import ZooConfig
    from .embedding import Position
    from .mixers.base import Mixer
    from .residual import Residual

BUILT_IN = "zoo.models"

POSITIONS: Registry[type[Position]] = Registry("position", built_in=BUILT_IN)
"""Position encodings: subclasses of [`zoo.models.embedding.Position`][]."""

NORMS: Registry[Callable[[int, ZooConfig], nn.Module]] = Registry("norm", built_in=BUILT_IN)
"""Normalisations: called with the normalised width and the configuration."""

FEED_FORWARDS: Registry[Callable[[ZooConfig], nn.Module]] = Registry("feed-forward", built_in=BUILT_IN)
"""Feed-forward sublayers: called with the configuration, mapping hidden states to hidden states."""

ATTENTIONS: Registry[type[Attention]] = Registry("attention", built_in=BUILT_IN)
"""Attention sublayers: subclasses of [`zoo.models.attention.Attention`][]."""

MIXERS: Registry[type[Mixer]] = Registry("mixer", built_in=BUILT_IN)
"""What mixes tokens in layers without attention: subclasses of [`zoo.models.mixers.base.Mixer`][]."""

RESIDUALS: Registry[type[Residual]] = Registry("residual", built_in=BUILT_IN)
"""How sublayers join the residual stream: subclasses of [`zoo.models.residual.Residual`][]."""

INITIALIZERS: Registry[Callable[[Any, ZooConfig], None]] = Registry("initializer", built_in=BUILT_IN)
"""Initialisation schemes: called with every module of a new model, children before parents, and the configuration."""

ATTENTIONS.register_lazily(
    "masked-rows-uniform",
    "zoo.variants.builders.vanilla:UniformMaskedRows",
    "Attention in which a query without any visible key attends to all keys alike, whatever it and they are.",
)
INITIALIZERS.register_lazily(
    "d2l",
    "zoo.variants.builders.d2l:d2l_initializer",
    "Xavier-uniform linear weights, everything else as PyTorch does. Arguments as for the built-in schemes.",
)

PART_FIELDS: dict[str, Registry[Any]] = {
    "position": POSITIONS,
    "norm": NORMS,
    "feed_forward": FEED_FORWARDS,
    "attention": ATTENTIONS,
    "mixer": MIXERS,
    "residual": RESIDUALS,
    "initializer": INITIALIZERS,
}
"""Which configuration field names a part of which registry."""


def refuse_former_names(part: type, **names: str) -> None:
    """Refuse a part that overrides a method by its former name, which nobody would notice since nothing calls it.

    Args:
        part: The part's class, while it is defined.
        names: What methods are called now, by what they were called.

    Raises:
        RegistrationError: When it has one of the former names.
    """
    for former, name in names.items():
        if former in vars(part):
            raise RegistrationError(f"{part.__name__} overrides {former}, which nothing calls: override {name} instead")


def option(config: ZooConfig, part: Any, name: str) -> Any:
    """Read a setting that a part has for itself.

    Args:
        config: The configuration, which has it if it was given.
        part: The part, whose `options` have it.
        name: The setting.
    """
    return getattr(config, name, part.options[name])


NAMED_FIELDS: dict[str, Registry[Any]] = {"variant": VARIANTS, **PART_FIELDS}
"""Which configuration field names something of which registry."""
