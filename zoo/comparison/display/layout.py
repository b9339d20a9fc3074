"""Tables on the terminal: columns that fit, times by phase, and examples to show."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from ..results.comparison import Comparison
from ..run.record import Run
from ..run.timings import PHASES

EXAMPLES = 4
LONGEST_TEXT = 160


def shown_runs(comparison: Comparison) -> list[Run]:
    """Choose of every variant the first run that has outputs."""
    chosen = (next((run for run in comparison.runs_of(name) if run.outputs), None) for name in comparison.names)
    return [run for run in chosen if run is not None]


def chosen_examples(comparison: Comparison, finished: list[Run], count: int = EXAMPLES) -> list[int]:
    """Choose the places of some examples, spread over the data, half of them such that the variants differ."""
    if not finished:
        return []
    everything = range(len(comparison.references))
    differing = [i for i in everything if len({run.outputs[i] for run in finished}) > 1]
    chosen = spread(differing, (count + 1) // 2)
    return sorted({*chosen, *spread([i for i in everything if i not in chosen], count - len(chosen))})


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """Cut a text that would fill the screen, as outputs of untrained models do, or a long name in a picture."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def spread(places: list[int], count: int) -> list[int]:
    """Choose a number of items at equal distances."""
    count = min(count, len(places))
    return [places[(2 * i + 1) * len(places) // (2 * count)] for i in range(count)]


def timings_table(comparison: Comparison) -> WideTable | Text:
    """Put the seconds of each phase into a table: a row a variant, the mean over its runs that were timed."""
    timed = {name: [run for run in comparison.runs if run.name == name and run.timings] for name in comparison.names}
    names = [name for name, runs in timed.items() if runs]
    if not names:
        return Text("no run of this comparison was timed")
    columns = [
        [Text(f"{phase.capitalize()}\ns"), *(Text(f"{mean(timed[name], phase):.2f}") for name in names)]
        for phase in PHASES
    ]
    shares = [mean(timed[name], "train") / sum(mean(timed[name], phase) for phase in PHASES) for name in names]
    columns.append([Text("Training\n%"), *(Text(f"{100 * share:.0f}") for share in shares)])
    return WideTable(names, columns)


def mean(runs: list[Run], phase: str) -> float:
    """The mean seconds of a phase; 0 where it did not happen."""
    return sum(run.timings.get(phase, 0.0) for run in runs) / len(runs)


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
