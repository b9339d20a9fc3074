"""Switches of the fast paths, which change results only by rounding or other random numbers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace

from zoo.base.errors import InputError, suggest

MODES = ("auto", "always", "never")


@dataclass(frozen=True)
class FastPaths:
    """Modes of the fast paths: "auto" (if faster), "always" (if possible), or "never".

    Args:
        unpadding: Padding is removed once at a stack's entry, so that token-wise layers run on real tokens only.
        cache_room: The cache of `generate` has preallocated room, and is written in place.
        chunked_loss: A loss without logits is computed in chunks of tokens.
        onednn_matmul: Training, evaluation, labels, embeddings and inference without padding on a CPU multiply float32
            matrices by oneDNN.
        quick_dropout: Dropout on a CPU draws 16 random bits per element instead of PyTorch's 64.
        graph_capture: Generation on a CPU captures its decode steps and replays them.
        prepacked_weights: Decode steps use prepacked weights.

    Raises:
        InputError: For a value other than these three.
    """

    unpadding: str = "auto"
    cache_room: str = "auto"
    chunked_loss: str = "auto"
    onednn_matmul: str = "auto"
    quick_dropout: str = "auto"
    graph_capture: str = "auto"
    prepacked_weights: str = "auto"

    def __post_init__(self) -> None:
        for field in fields(self):
            if (mode := getattr(self, field.name)) not in MODES:
                raise InputError(f"{field.name}={mode!r}; valid: {', '.join(MODES)}{suggest(str(mode), MODES)}")


def from_environment() -> FastPaths:
    """Read the modes from environment variables, ZOO_UNPADDING for `unpadding`."""
    variables = {field.name: os.environ.get(f"ZOO_{field.name.upper()}") for field in fields(FastPaths)}
    return FastPaths(**{name: mode for name, mode in variables.items() if mode is not None})


_default = from_environment()  # at import, because compiled code cannot read the environment
_modes: ContextVar[FastPaths] = ContextVar("fast_paths")


def current() -> FastPaths:
    return _modes.get(_default)


@contextmanager
def fast_paths(**modes: str) -> Iterator[FastPaths]:
    """Context manager that changes modes in this thread or asynchronous task.

    ```python
    with fast_paths(unpadding="never"):
        ...
    ```

    Args:
        modes: As in [`FastPaths`][].

    Yields:
        The modes in effect meanwhile.

    Raises:
        InputError: For an invalid mode.
        TypeError: For an unknown fast path.
    """
    token = _modes.set(replace(current(), **modes))
    try:
        yield current()
    finally:
        _modes.reset(token)


@contextmanager
def without_trials() -> Iterator[None]:
    """Context manager in which no trial by the clock chooses a fast path that rounds otherwise, unless it was set."""
    mode = current().prepacked_weights
    with fast_paths(prepacked_weights="never" if mode == "auto" else mode):
        yield
