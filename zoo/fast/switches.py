"""Switches of what makes models faster and changes their results by rounding, or by other random numbers, only."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace

from zoo.base.errors import DeprecatedNameWarning, InputError, suggest

MODES = ("auto", "always", "never")


@dataclass(frozen=True)
class FastPaths:
    """When fast paths are taken: "auto" where they pay, "always" where they can be, or "never".

    Args:
        unpadding: Padding is removed once at a stack's entry, so that all token-wise work runs on real tokens only.
        cache_room: The cache that `generate` makes has room for keys and values to come, and writes them in place.
        chunked_loss: A loss that is wanted without logits is computed a chunk of tokens at a time.
        onednn_matmul: Training on a CPU multiplies float32 matrices by oneDNN.
        quick_dropout: Dropout on a CPU draws 16 random bits an element instead of PyTorch's 64.
        graph_capture: Generation on a CPU captures its decode steps and replays them.
        prepacked_weights: Replayed steps multiply by weights that are prepacked for them.

    Raises:
        InputError: When a value is none of the three.
    """

    unpadding: str = "auto"
    cache_room: str = "auto"
    chunked_loss: str = "auto"
    onednn_matmul: str = "auto"
    quick_dropout: str = "auto"
    graph_capture: str = "auto"
    prepacked_weights: str = "auto"

    def __post_init__(self) -> None:
        """Refuse what is no mode."""
        for field in fields(self):
            if (mode := getattr(self, field.name)) not in MODES:
                raise InputError(f"{field.name}={mode!r}; valid: {', '.join(MODES)}{suggest(str(mode), MODES)}")


RENAMED = {
    "packing": "unpadding",
    "products": "onednn_matmul",
    "recorded_steps": "graph_capture",
    "packed_weights": "prepacked_weights",
}
"""Former names of switches, which are still understood."""


def with_present_names(modes: Mapping[str, str], spell: Callable[[str], str] = str) -> dict[str, str]:
    """Translate former names of switches.

    Args:
        modes: Modes by present or former names.
        spell: Writes a name as the user did, for the warning.

    Returns:
        Modes by present names; any other word stays as it is.
    """
    for old in modes.keys() & RENAMED.keys():
        warnings.warn(f"{spell(old)} is called {spell(RENAMED[old])} now", DeprecatedNameWarning, stacklevel=4)
    return {RENAMED.get(name, name): mode for name, mode in modes.items()}


def variable_of(name: str) -> str:
    """The environment variable of a switch."""
    return f"ZOO_{name.upper()}"


def from_environment() -> FastPaths:
    """Read the modes off environment variables, ZOO_UNPADDING for `unpadding`.

    Returns:
        "auto" for what is not set.

    Raises:
        InputError: When a variable holds no mode.
    """
    names = (*RENAMED, *(field.name for field in fields(FastPaths)))
    modes = {name: mode for name in names if (mode := os.environ.get(variable_of(name))) is not None}
    return FastPaths(**with_present_names(modes, variable_of))


_default = from_environment()  # at once, for compiled code reads no environment
_modes: ContextVar[FastPaths] = ContextVar("fast_paths")


def current() -> FastPaths:
    """The modes as they stand.

    Returns:
        Those of the innermost [`fast_paths`][] of this thread or asynchronous task, else those of the environment.
    """
    return _modes.get(_default)


@contextmanager
def fast_paths(**modes: str) -> Iterator[FastPaths]:
    """Change modes for a while, in this thread or asynchronous task.

    ```python
    with fast_paths(unpadding="never"):
        ...
    ```

    Args:
        modes: As in [`FastPaths`][].

    Yields:
        The modes as they stand meanwhile.

    Raises:
        InputError: When a value is no mode.
        TypeError: When there is no such path.
    """
    token = _modes.set(replace(current(), **with_present_names(modes)))
    try:
        yield current()
    finally:
        _modes.reset(token)
