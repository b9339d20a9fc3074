"""Switches of what makes models faster and changes their results by rounding, or by other random numbers, only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from zoo.errors import InputError, suggest

MODES = ("auto", "always", "never")


@dataclass(frozen=True)
class FastPaths:
    """When fast paths are taken: "auto" where they pay, "always" where they can be, or "never".

    Args:
        unpadding: Padding is removed once at a stack's entry, so that all token-wise work runs on real tokens only.
        cache_room: The cache that `generate` makes has room for keys and values to come, and writes them in place.
        chunked_loss: A loss that is wanted without logits is computed a chunk of tokens at a time.
        products: Training on a CPU multiplies float32 matrices by oneDNN.
        quick_dropout: Dropout on a CPU draws 16 random bits an element instead of PyTorch's 64.
        recorded_steps: Generation on a CPU records its steps and replays them.
        packed_weights: Replayed steps multiply by weights that are laid out for them.

    Raises:
        InputError: When a value is none of the three.
    """

    unpadding: str = "auto"
    cache_room: str = "auto"
    chunked_loss: str = "auto"
    products: str = "auto"
    quick_dropout: str = "auto"
    recorded_steps: str = "auto"
    packed_weights: str = "auto"

    def __post_init__(self) -> None:
        """Refuse what is no mode."""
        for field in fields(self):
            if (mode := getattr(self, field.name)) not in MODES:
                raise InputError(f"{field.name}={mode!r}; valid: {', '.join(MODES)}{suggest(str(mode), MODES)}")


def from_environment() -> FastPaths:
    """Read the modes off environment variables, ZOO_UNPADDING for `unpadding`.

    Returns:
        "auto" for what is not set.

    Raises:
        InputError: When a variable holds no mode.
    """
    variables = {field.name: os.environ.get(f"ZOO_{field.name.upper()}") for field in fields(FastPaths)}
    return FastPaths(**{name: mode for name, mode in variables.items() if mode is not None})


_stack: list[FastPaths] = [from_environment()]  # at once, for compiled code reads no environment


def current() -> FastPaths:
    """The modes as they stand.

    Returns:
        Those of the innermost [`fast_paths`][], else those of the environment.
    """
    return _stack[-1]


@contextmanager
def fast_paths(**modes: str) -> Iterator[FastPaths]:
    """Change modes for a while, in all threads.

        with fast_paths(unpadding="never"):
            ...

    Args:
        modes: As in [`FastPaths`][].

    Yields:
        The modes as they stand meanwhile.

    Raises:
        InputError: When a value is no mode.
        TypeError: When there is no such path.
    """
    _stack.append(replace(current(), **modes))
    try:
        yield _stack[-1]
    finally:
        _stack.pop()
