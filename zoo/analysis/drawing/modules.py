"""Small questions about modules."""

from __future__ import annotations

from typing import Any

from torch import nn

from zoo.models.borrowing import borrowed_by


def name_in(parent: nn.Module, module: nn.Module) -> str:
    """Name a child."""
    children = (*parent.named_children(), *borrowed_by(parent).items())
    return next((name for name, child in children if child is module), "")


def does_something(module: nn.Module) -> bool:
    """Whether a module changes what passes through it, at least in training."""
    return not isinstance(module, nn.Identity) and not (isinstance(module, nn.Dropout) and module.p == 0)


def signature(module: nn.Module) -> tuple[Any, ...]:
    """Sum up a module, so that two equal sums mean two equal modules."""
    plain = (bool, int, float, str, type(None))
    return tuple(
        (
            name,
            type(part).__qualname__,
            tuple((key, tuple(parameter.shape)) for key, parameter in part.named_parameters(recurse=False)),
            tuple(
                (key, value)
                for key, value in sorted(vars(part).items())
                if isinstance(value, plain) and key not in {"training", "layer_idx"} and not key.startswith("_")
            ),
        )
        for name, part in module.named_modules()
    )
