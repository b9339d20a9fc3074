"""The built-in activations: those of transformers, under their names there."""

from __future__ import annotations

from functools import partial

from torch import nn
from transformers.activations import ACT2CLS

from .parts import ACTIVATIONS

ONE_KERNEL = {"gelu_new": (nn.GELU, {"approximate": "tanh"})}
"""Activations that PyTorch computes in one kernel, and transformers in several."""


def register_built_in() -> None:
    """Register the activations, some of which are a class with options."""
    for name, kind in {**ACT2CLS, **ONE_KERNEL}.items():
        kind, options = kind if isinstance(kind, tuple) else (kind, {})
        activation = partial(kind, **options)
        given = ", ".join(f"{option}={value!r}" for option, value in options.items())
        activation.__doc__ = f"`{kind.__name__}({given})` of {kind.__module__.partition('.')[0]}."
        ACTIVATIONS.register(name, activation)


register_built_in()
