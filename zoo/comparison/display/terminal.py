"""A comparison as tables on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..results.comparison import Comparison
from ..results.metrics import Metric
from ..results.statistics import BETTER, WORSE
from ..results.summary import ComparisonSummary, VariantSummary, summarize
from ..results.verdicts import FAILED
from .cells import corrected, difference, number
from .examples import chosen_examples, shortened, shown_runs
from .findings import sentences

GAP = 2
"""Blanks between columns."""

NARROWEST_NAME = 24
SHARE_OF_NAMES = 3
"""Names have at least a third of the width, and are folded beyond that."""

STYLES = {BETTER: "green", WORSE: "red", FAILED: "red"}


def show(comparison: Comparison, console: Console | None = None) -> None:
    """Print a comparison.

    Args:
        comparison: The comparison.
        console: Where to, by default stdout.
    """
    (console or Console(highlight=False)).print(render(comparison))


def as_text(comparison: Comparison) -> str:
    """Write a comparison as text, as wide as the terminal."""
    console = Console(highlight=False, color_system=None)
    with console.capture() as capture:
        show(comparison, console)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().split("\n"))


def render(comparison: Comparison) -> RenderableType:
    """Put a comparison into tables: numbers, what they mean, examples side by side, and what failed."""
    summary = summarize(comparison)
    return Group(
        Numbers(summary),
        Text(""),
        *(Text(sentence) for sentence in sentences(summary)),
        *signatures(summary),
        Text(""),
        examples(comparison),
        *failures(comparison),
    )


class Numbers:
    """The numbers, a row a variant, in as many tables below each other as the width needs."""

    def __init__(self, summary: ComparisonSummary) -> None:
        self.summary = summary

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay the columns out, none of them ever folded, with the variants' names in front of each table."""
        widest_name = max(NARROWEST_NAME, options.max_width // SHARE_OF_NAMES)
        names = [folded(row.name, widest_name) for row in self.summary.rows]
        room = options.max_width - width(["Variant", *names])
        columns = list(cells(self.summary))
        widths = [GAP + width(column) for column in columns]
        fewest = len(packed(widths, room))
        # Of the ways to need as few tables, the one whose widest table is narrowest, so that the last is not a rest.
        evenly = next((less for less in range(max(widths), room) if len(packed(widths, less)) == fewest), room)
        for start, end in packed(widths, evenly):
            if start:
                yield Text("")
            yield self.table(names, columns[start:end])

    def table(self, names: Sequence[str], columns: Sequence[list[Text]]) -> Table:
        """Make one of the tables of folded names, and columns with their headings."""
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


def cells(summary: ComparisonSummary) -> Iterator[list[Text]]:
    """Write every column with its heading: what decides, the verdict, and everything else."""
    for column in (column for column in summary.metrics if column.in_brief):
        yield [Text(column.title.replace(" ", "\n", 1)), *(cell(summary, column, row) for row in summary.rows)]
        if column is summary.main:
            yield [Text("vs\nbaseline"), *(Text(difference(summary, row)) for row in summary.rows)]
            yield [Text("p"), *(Text(corrected(row)) for row in summary.rows)]
            yield [Text("Verdict"), *(Text(row.verdict, style=STYLES.get(row.verdict, "")) for row in summary.rows)]
    yield [Text("Reloaded"), *(reloaded(row) for row in summary.rows)]


def cell(summary: ComparisonSummary, column: Metric, row: VariantSummary) -> Text:
    """Write one number; the best main score stands out."""
    stands_out = column is summary.main and row is summary.best
    return Text(number(column, row), style="bold green" if stands_out else "")


def reloaded(row: VariantSummary) -> Text:
    """Say what became of a variant's models in fresh processes: "identical", "1 of 2 equal", "differs"."""
    checks = [run.reload for run in row.runs if run.reload is not None]
    if not checks:
        return Text("failed", style="red")
    equal = [check for check in checks if check.equal]
    word = "identical" if all(check.largest_difference == 0 for check in checks) else "equal" if equal else "differs"
    text = word if len(equal) in (0, len(row.runs)) else f"{len(equal)} of {len(row.runs)} {word}"
    return Text(text, style="green" if len(equal) == len(row.runs) else "red")


def signatures(summary: ComparisonSummary) -> Iterator[Text]:
    """Say how the scores were computed, and what they rest on."""
    best = summary.best
    if best is None or best.finished[0].report is None:
        return
    report = best.finished[0].report
    yield Text("")
    for score in report["scores"].values():
        yield Text(f"{score['name']}: {score['signature']}", style="dim")
    seeds = summary.comparison.seeds
    named = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}, mean ± standard deviation"
    yield Text(
        f"{report['train_examples']:,} training and {report['heldout_examples']:,} held-out examples, "
        f"{report['epochs']:.3g} epochs, {named}; tokens and losses without padding",
        style="dim",
    )


def examples(comparison: Comparison) -> Table:
    """Put some outputs beside what they should be."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    made.add_column(no_wrap=True, style="cyan")
    made.add_column(overflow="fold")
    finished = shown_runs(comparison)
    for place in chosen_examples(comparison, finished):
        reference = comparison.references[place]
        made.add_row("source", Text(shortened(comparison.sources[place]), style="bold"))
        made.add_row("reference", shortened(reference))
        for run in finished:
            right = run.outputs[place] == reference
            made.add_row(
                folded(run.name, NARROWEST_NAME), Text(shortened(run.outputs[place]), style="green" if right else "")
            )
        made.add_row("", "")
    return made


def failures(comparison: Comparison) -> Iterator[Text]:
    """Say what failed, and why."""
    for run in comparison.failed:
        name = run.name if len(comparison.seeds) == 1 else run.label
        yield Text.assemble((f"{name} failed: ", "bold red"), run.error or "")


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
