"""Switches of everything that makes models faster and changes their results by rounding only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from zoo.errors import InputError, suggest

VARIABLE = "ZOO_FAST_PATHS"


@dataclass(frozen=True)
class FastPaths:
    """Which fast paths may be taken. Each is taken only where it serves, and agrees with the plain path to rounding.

    Args:
        packing: Padding is removed once at a stack's entry, so that all token-wise work runs on real tokens only.
    """

    packing: bool = True


NAMES = tuple(field.name for field in fields(FastPaths))


def from_environment() -> FastPaths:
    """Read the switches off the variable ZOO_FAST_PATHS: names of those to leave on, separated by commas, or "none".

    Returns:
        All switches on if the variable is not set.

    Raises:
        InputError: When a name is unknown.
    """
    if (value := os.environ.get(VARIABLE)) is None:
        return FastPaths()
    chosen = [name for name in value.replace(" ", "").split(",") if name not in ("", "none")]
    check(chosen)
    return FastPaths(**{name: name in chosen for name in NAMES})


def check(names: list[str]) -> None:
    """Refuse names of fast paths that don't exist.

    Args:
        names: The names.

    Raises:
        InputError: When one is unknown.
    """
    for name in names:
        if name not in NAMES:
            raise InputError(f"no fast path {name!r}; valid: {', '.join(NAMES)}{suggest(name, NAMES)}")


_current: list[FastPaths] = []


def enabled() -> FastPaths:
    """The switches as they stand.

    Returns:
        Those of the innermost [`fast_paths`][], else those of the environment.
    """
    if not _current:
        _current.append(from_environment())
    return _current[-1]


@contextmanager
def fast_paths(**switches: bool) -> Iterator[FastPaths]:
    """Switch fast paths off (or on again) for a while, in all threads.

    Args:
        switches: The fast paths to change, by name, as in [`FastPaths`][].

    Yields:
        The switches as they stand meanwhile.

    Raises:
        InputError: When a name is unknown.
    """
    check(list(switches))
    _current.append(replace(enabled(), **switches))
    try:
        yield _current[-1]
    finally:
        _current.pop()
