"""Skips modules that would do nothing: identities, and dropout in evaluation."""

from __future__ import annotations

import torch
from torch import nn

from .dropout import Dropout
from .watching import is_watched


def through(module: nn.Module, states: torch.Tensor) -> torch.Tensor:
    """Send states through a module, unless nothing would happen to them there.

    Calling an identity, or dropout in evaluation, takes as long as a small operation; a step of generation meets
    dozens.

    Args:
        module: What stands in the place.
        states: *Shape:* any

    Returns:
        What the module returns. *Shape:* as states.
    """
    kind = type(module)
    is_idle = kind is nn.Identity or (kind in (nn.Dropout, Dropout) and not module.training)
    return states if is_idle and not is_watched(module) else module(states)
