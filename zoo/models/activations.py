"""The built-in activations: those of transformers, under their names there."""

from __future__ import annotations

from functools import partial

from torch import nn
from transformers.activations import ACT2CLS

ONE_KERNEL = {"gelu_new": (nn.GELU, {"approximate": "tanh"})}
"""Activations that PyTorch computes in one kernel, and transformers in several."""


def __getattr__(name: str) -> partial[nn.Module]:
    """Look up an activation, which is a class with options."""
    if name not in ACT2CLS:
        raise AttributeError(f"module {__name__!r} has no activation {name!r}")
    given = {**ACT2CLS, **ONE_KERNEL}[name]
    kind, options = given if isinstance(given, tuple) else (given, {})
    activation = partial(kind, **options)
    words = ", ".join(f"{option}={value!r}" for option, value in options.items())
    activation.__doc__ = f"`{kind.__name__}({words})` of {kind.__module__.partition('.')[0]}."
    return activation
