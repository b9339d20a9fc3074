"""Tables on the terminal with a row a variant, in as many parts as the width needs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

GAP = 2  # Blanks between columns

NARROWEST_NAME = 24
SHARE_OF_NAMES = 3  # Names have at least a third of the width, and are folded beyond that


class WideTable:
    """A row a variant, in as many tables below each other as the width needs."""

    def __init__(self, names: Sequence[str], columns: Sequence[list[Text]]) -> None:
        self.names = names
        self.columns = columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the columns out, none of them ever folded, with the variants' names in front of each table."""
        widest_name = max(NARROWEST_NAME, options.max_width // SHARE_OF_NAMES)
        names = [folded(name, widest_name) for name in self.names]
        room = options.max_width - width(["Variant", *names])
        widths = [GAP + width(column) for column in self.columns]
        fewest = len(packed(widths, room))
        # With the fewest tables, the narrowest widest one, so that the last has not the rest alone.
        evenly = next((less for less in range(max(widths), room) if len(packed(widths, less)) == fewest), room)
        for start, end in packed(widths, evenly):
            if start:
                yield Text("")
            yield self.table(names, self.columns[start:end])

    def table(self, names: Sequence[str], columns: Sequence[list[Text]]) -> Table:
        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        made.add_column("Variant", no_wrap=True, style="cyan", vertical="bottom")
        for heading, *_ in columns:
            made.add_column(heading, no_wrap=True, justify="right", vertical="bottom")
        for name, *row in zip(names, *(column[1:] for column in columns), strict=True):
            made.add_row(Text(name), *row)
        return made


def packed(widths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Put columns into as few tables as have room for them: the first and the last column, excluded, of each."""
    starts, used = [0], 0
    for place, needed in enumerate(widths):
        if used and used + needed > room:
            starts.append(place)
            used = 0
        used += needed
    return list(zip(starts, [*starts[1:], len(widths)], strict=True))


def folded(name: str, widest: int) -> str:
    """Break a variant's name into lines of about this width where a setting ends."""
    lines = [""]
    for part in re.findall(r"[^:,+]+[:,]?|\+[^:,+]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > widest:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def width(texts: Sequence[Text | str]) -> int:
    """The length of the longest line of some texts."""
    return max(len(line) for text in texts for line in str(text).split("\n"))
