"""Which modules a layer calls, in which order, and on what: found by running it on the meta device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from zoo.models import Position, ZooConfig
from zoo.models.context import EarlierLayers
from zoo.models.parts import RESIDUALS
from zoo.models.residual import Residual

TRACED = (1, 2)
"""The size of the batch that a layer is run on: sequences and tokens."""


@dataclass
class Call:
    """One call of a module."""

    module: nn.Module
    given: Tensor | None = None  # The first tensor that it was called with
    inner: list[Call] = field(default_factory=list)  # The calls that were made meanwhile


def trace(layer: nn.Module, config: ZooConfig, position: Position, earlier: EarlierLayers) -> list[Call]:
    """List the calls of a meta-device layer's own modules, and of the slots of residuals, without identities."""
    root = Call(layer)
    open_calls = [root]

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        open_calls.append(Call(module, next(given, None)))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        call = open_calls.pop()
        open_calls[-1].inner.append(call)

    hooks = []
    for module in watched(layer):
        hooks += [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave),
        ]
    hidden_states = torch.zeros(*TRACED, config.hidden_size, device="meta")
    position_ids = torch.zeros(TRACED, dtype=torch.long, device="meta")
    try:
        with torch.no_grad():
            layer.eval()(
                RESIDUALS.get(config.residual).build_stream(config).open(hidden_states),
                None,
                None,
                torch.zeros_like(hidden_states) if config.add_cross_attention else None,
                None,
                position_embeddings=position.rotation(hidden_states, position_ids),
                step=0,
                earlier=earlier,
            )
    finally:
        for hook in hooks:
            hook.remove()
    return root.inner


def watched(layer: nn.Module) -> list[nn.Module]:
    """Modules with traced calls."""
    modules = dict.fromkeys(layer.children())
    for residual in layer.children():
        if isinstance(residual, Residual):
            modules |= dict.fromkeys(residual.children())
    return [module for module in modules if not isinstance(module, nn.Identity)]
