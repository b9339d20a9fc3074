"""A comparison as tables on a terminal, and as a notebook shows it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from zoo.base import printed
from zoo.base.printed import printable

from ..results.comparison import Comparison
from ..results.design import FAILED
from ..results.statistics import BETTER, WORSE
from ..results.summary import ComparisonSummary, VariantSummary, summarize
from .findings import headline, sentences
from .formatting import columns_of, table
from .layout import GAP, NARROWEST_NAME, WideTable, chosen_examples, folded, shortened, shown_runs

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
    return Group(
        WideTable([row.name for row in summary.rows], list(cells(summary))),
        Text(""),
        *(Text(sentence) for sentence in sentences(summary)),
        *signatures(summary),
        Text(""),
        examples(comparison),
        *failures(comparison),
    )


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
