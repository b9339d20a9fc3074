"""How verbs import what they work with."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Leave garbage alone for a while.

    Importing torch and transformers makes a million objects, none of which is garbage, and an eighth of the time goes
    into looking for some among them.

    Yields:
        Nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
