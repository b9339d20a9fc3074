"""Detection of hooked or patched modules, for which fast paths are off."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.modules.module import _has_any_global_hook

RECORDER = "transformers.utils.output_capturing"
"""Module of hooks that transformers leaves on a model after the first call with hidden states or attention weights; in
other calls they do nothing."""


def is_watched(module: nn.Module) -> bool:
    """Whether calling a module runs more than its class's forward: hooks, an own `forward`, or its own compilation."""
    return bool(
        module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
        or module._compiled_call_impl is not None
        or any(getattr(hook, "__module__", None) != RECORDER for hook in module._forward_hooks.values())
        or _has_any_global_hook()
    )


def kinds_of(modules: Iterable[nn.Module]) -> frozenset[type[nn.Module]]:
    """List the classes of modules and of all their submodules."""
    return frozenset(type(part) for module in modules for part in module.modules())


def are_untouched(modules: Iterable[nn.Module], kinds: frozenset[type[nn.Module]]) -> bool:
    """Whether modules and their submodules have the classes they were built of, and no hooks."""
    return not any(is_watched(part) or type(part) not in kinds for module in modules for part in module.modules())
