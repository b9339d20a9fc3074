"""What a terminal and a notebook show of results."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

WIDTH = 100


class Printed:
    """Shown in a notebook as `print` shows it: for classes with a `__str__` that is meant to be read."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Answer IPython, which knows this method."""
        printer.text(str(self))


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """Write names and texts in two columns.

    Returns:
        Lines of at most `WIDTH` characters, texts folded within their column.
    """
    listed = list(pairs)
    indent = 2 + max((len(name) for name, _ in listed), default=0)
    lines = []
    for name, text in listed:
        folded = textwrap.wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False) or [""]
        lines += [name.ljust(indent) + folded[0], *(" " * indent + line for line in folded[1:])]
    return "\n".join(line.rstrip() for line in lines)
