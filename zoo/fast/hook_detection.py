"""Modules that somebody has a hand in: those run as they read, and see what they would see without any fast path."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.modules.module import _has_any_global_hook

RECORDER = "transformers.utils.output_capturing"
"""Whose hooks stay on a model for good after the first call that asked for hidden states or attention weights; in other
calls they do nothing."""


def is_watched(module: nn.Module) -> bool:
    """Whether calling a module does more than its class says, or something else.

    Args:
        module: Any module; those in it are not looked at.

    Returns:
        True where it has hooks of any kind, an own `forward`, or is compiled by itself.
    """
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
    """List the classes of modules and of all that is in them."""
    return frozenset(type(part) for module in modules for part in module.modules())


def are_untouched(modules: Iterable[nn.Module], kinds: frozenset[type[nn.Module]]) -> bool:
    """Whether modules are still what was built, and nobody watches them.

    Args:
        modules: Any modules, looked at with all that is in them.
        kinds: The classes that they were built of.

    Returns:
        False also where another library has replaced a part.
    """
    return not any(is_watched(part) or type(part) not in kinds for module in modules for part in module.modules())
