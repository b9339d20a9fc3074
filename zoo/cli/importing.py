"""How verbs import what they work with."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Leave garbage alone for a while, and what is imported meanwhile for good."""
    was_on, is_first = gc.isenabled(), "torch" not in sys.modules
    gc.disable()
    try:
        yield
    finally:
        if is_first and "torch" in sys.modules:  # later, there may be models among what would be kept
            gc.freeze()
        if was_on:
            gc.enable()
