"""A comparison as tables on a terminal, and as a notebook shows it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from zoo.base import printed
from zoo.base.printed import printable

from ..results.comparison import Comparison
from ..results.design import FAILED
from ..results.statistics import BETTER, WORSE
from ..results.summary import ComparisonSummary, VariantSummary, summarize
from ..run.record import PHASES, Run
from .findings import headline, sentences
from .formatting import columns_of, table
from .wide_table import GAP, NARROWEST_NAME, WideTable, folded

STYLES = {BETTER: "green", WORSE: "red", FAILED: "red"}


def show(comparison: Comparison, console: Console | None = None) -> None:
    """Print a comparison, by default to stdout."""
    (console or Console(highlight=False)).print(render(comparison))


def parts_of(comparison: Comparison) -> Iterator[printed.Part]:
    """Describe for a notebook what was compared, then the table of a terminal, then what it means."""
    summary = summarize(comparison)
    headings, *rows = table(summary, [metric for metric in summary.metrics if metric.in_brief])
    yield printed.Title(comparison.task, headline(summary))
    yield printed.Table(rows, tuple(headings), tuple(heading for heading in headings[1:] if heading != "Verdict"))
    yield from map(printed.Note, sentences(summary))


def as_text(comparison: Comparison) -> str:
    console = Console(highlight=False, color_system=None)
    with console.capture() as capture:
        show(comparison, console)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().split("\n"))


def render(comparison: Comparison) -> RenderableType:
    """Put a comparison into tables: numbers, what they mean, examples side by side, and what failed."""
    summary = summarize(comparison)
    table = WideTable([row.name for row in summary.rows], list(cells(summary)))
    words = [*map(Text, sentences(summary)), *signatures(summary)]
    return Group(table, Text(""), *words, Text(""), examples(comparison), *failures(comparison))


def cells(summary: ComparisonSummary) -> Iterator[list[Text]]:
    """Write every column with its heading: what decides, the verdict, and everything else."""
    best = {row.name: "bold green" for row in summary.rows if row is summary.best}
    styles = {"Verdict": {row.name: STYLES.get(row.verdict, "") for row in summary.rows}}
    styles |= {} if summary.main is None else {summary.main.title: best}
    for heading, texts in columns_of(summary, (metric for metric in summary.metrics if metric.in_brief)):
        styled = styles.get(heading, {})
        cells = [Text(text, styled.get(row.name, "")) for text, row in zip(texts, summary.rows, strict=True)]
        yield [Text(heading.replace(" ", "\n", 1)), *cells]
    yield [Text("Reloaded"), *(reloaded(row) for row in summary.rows)]


def reloaded(row: VariantSummary) -> Text:
    """Describe what became of a variant's models in fresh processes: "identical", "1 of 2 equal", "differs"."""
    checks = [run.reload for run in row.runs if run.reload is not None]
    if not checks:
        return Text("failed", style="red")
    equal = [check for check in checks if check.equal]
    word = "differs"
    if equal:
        word = "identical" if all(check.largest_difference == 0 for check in equal) else "equal"
    text = word if len(equal) in (0, len(row.runs)) else f"{len(equal)} of {len(row.runs)} {word}"
    return Text(text, style="green" if len(equal) == len(row.runs) else "red")


def signatures(summary: ComparisonSummary) -> Iterator[Text]:
    """Describe how the scores were computed, and what they rest on."""
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


def one_line(text: str) -> str:
    """A text of the data or of a model, cut, without what a terminal would obey."""
    return printable(shortened(text))


def examples(comparison: Comparison) -> Table:
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    made.add_column(no_wrap=True, style="cyan")
    made.add_column(overflow="fold")
    finished = shown_runs(comparison)
    for place in chosen_examples(comparison, finished):
        reference = comparison.references[place]
        made.add_row("source", Text(one_line(comparison.sources[place]), style="bold"))
        made.add_row("reference", Text(one_line(reference)))
        for run in finished:
            style = "green" if run.outputs[place] == reference else ""
            made.add_row(Text(folded(run.name, NARROWEST_NAME)), Text(one_line(run.outputs[place]), style=style))
        made.add_row("", "")
    return made


def failures(comparison: Comparison) -> Iterator[Text]:
    for run in comparison.failed:
        name = run.name if len(comparison.seeds) == 1 else run.label
        yield Text.assemble((f"{name} failed: ", "bold red"), run.error or "")


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
    means: dict[str, dict[str, float]] = {}
    for name in comparison.names:
        if timed := [run.timings for run in comparison.runs_of(name) if run.timings]:
            means[name] = {phase: fmean(one.get(phase, 0.0) for one in timed) for phase in PHASES}
    if not means:
        return Text("no run of this comparison was timed")
    columns = [[f"{phase.capitalize()}\ns", *(f"{own[phase]:.2f}" for own in means.values())] for phase in PHASES]
    columns.append(["Training\n%", *(f"{100 * own['train'] / sum(own.values()):.0f}" for own in means.values())])
    return WideTable(list(means), [list(map(Text, column)) for column in columns])
