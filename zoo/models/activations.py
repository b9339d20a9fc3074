"""The built-in activations: those of transformers, under their names there."""

from functools import partial
from typing import Any

from torch import nn
from transformers.activations import ACT2CLS

OTHERS: dict[str, Any] = {
    "gelu_new": (nn.GELU, {"approximate": "tanh"}),  # one kernel in place of several
    "xielu": (ACT2CLS["xielu"], {"dtype": None}),  # weights in the model's dtype: in bfloat16, small steps are lost
}
"""Activations that are built otherwise than in transformers."""


def __getattr__(name: str) -> partial[nn.Module]:
    """Look up an activation, which is a class with options."""
    if name not in ACT2CLS:
        raise AttributeError(f"module {__name__!r} has no activation {name!r}")
    given = {**ACT2CLS, **OTHERS}[name]
    kind, options = given if isinstance(given, tuple) else (given, {})
    activation = partial(kind, **options)
    words = ", ".join(f"{option}={value!r}" for option, value in options.items())
    activation.__doc__ = f"`{kind.__name__}({words})` of {kind.__module__.partition('.')[0]}."
    return activation
