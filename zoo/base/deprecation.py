"""Deprecated names: a warning that names the replacement, for one minor version at least (docs/api.md).

Standard library only.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from zoo.base.errors import DeprecatedNameWarning

Function = TypeVar("Function", bound=Callable[..., Any])


def warn_deprecated(name: str, instead: str) -> None:
    """Give a `DeprecatedNameWarning`, as in "variant 'old'", "use 'new'", at the first line outside the zoo."""
    warnings.warn(f"{name} is deprecated: {instead}", DeprecatedNameWarning, level_of_user())


def level_of_user() -> int:
    """The `stacklevel` at which a warning given by the caller points to the first line outside the zoo."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "zoo":
        level, frame = level + 1, frame.f_back
    return level


def renamed(**new_names: str) -> Callable[[Function], Function]:
    """Decorator: a function accepts arguments by their old names, with a warning: `@renamed(dev="heldout")`."""

    def accept(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for old in new_names.keys() & kwargs.keys():
                new = new_names[old]
                if new in kwargs:
                    raise TypeError(f"{function.__name__}() got {new!r} and its old name {old!r}")
                warn_deprecated(f"argument {old!r} of {function.__name__}()", f"use {new!r}")
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return accept
