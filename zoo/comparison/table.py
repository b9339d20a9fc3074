"""A comparison as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from .results import Comparison, Run

EXAMPLES = 4
LONGEST_TEXT = 160
MEBIBYTE = 1024 * 1024


def show(comparison: Comparison, console: Console | None = None) -> None:
    """Print a comparison.

    Args:
        comparison: The comparison.
        console: Where to, by default stdout.
    """
    (console or Console(highlight=False)).print(render(comparison))


def render(comparison: Comparison) -> RenderableType:
    """Put a comparison into tables.

    Args:
        comparison: The comparison.

    Returns:
        The numbers, with the scores' signatures; some examples side by side; what failed.
    """
    return Group(numbers(comparison), *signatures(comparison), Text(""), examples(comparison), *failures(comparison))


def numbers(comparison: Comparison) -> Table:
    """Put the numbers into a table, a row a variant.

    Args:
        comparison: The comparison.

    Returns:
        The table; the best score stands out.
    """
    finished = [run for run in comparison.runs if run.report is not None]
    scores = list(finished[0].report["scores"]) if finished and finished[0].report else []
    titles = (
        [finished[0].report["scores"][score]["name"] for score in scores] if finished and finished[0].report else []
    )
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    made.add_column("Variant", no_wrap=True, style="cyan")
    for title in ("Parameters", "Tokens/s", "Peak memory", "Train loss", "Held-out loss", *titles):
        made.add_column(title, justify="right")
    made.add_column("Reloaded")
    for run in comparison.runs:
        report = run.report
        if report is None:
            made.add_row(run.name, *["-"] * (5 + len(scores)), Text("failed", style="red"))
            continue
        values = [f"{report['scores'][score]['value']:.2f}" for score in scores]
        made.add_row(
            run.name,
            f"{report['num_parameters']:,}",
            f"{report['train_tokens_per_second']:,.0f}",
            memory(report["peak_memory"]),
            f"{report['train_loss']:.3f}",
            f"{report['heldout_loss']:.3f}",
            *(Text(value, style="bold green" if run is comparison.best else "") for value in values),
            reloaded(run),
        )
    return made


def memory(peak: int | None) -> str:
    """Write a number of bytes.

    Args:
        peak: The number, None where it is not known.

    Returns:
        For instance "640 MiB".
    """
    return "-" if peak is None else f"{peak / MEBIBYTE:,.0f} MiB"


def reloaded(run: Run) -> Text:
    """Say what became of a model in a fresh process.

    Args:
        run: A run that was trained.

    Returns:
        "identical", "equal" where only rounding differs, or "differs".
    """
    if run.reload is None or not run.reload.equal:
        return Text("failed" if run.reload is None else "differs", style="red")
    return Text("identical" if run.reload.largest_difference == 0 else "equal", style="green")


def signatures(comparison: Comparison) -> Iterator[Text]:
    """Say how the scores were computed, and what they rest on.

    Args:
        comparison: The comparison.

    Yields:
        A line each.
    """
    best = comparison.best
    if best is None or best.report is None:
        return
    report = best.report
    yield Text("")
    for score in report["scores"].values():
        yield Text(f"{score['name']}: {score['signature']}", style="dim")
    yield Text(
        f"{report['train_examples']:,} training and {report['heldout_examples']:,} held-out examples, "
        f"{report['epochs']:g} epochs, {seeds(comparison)}; tokens and losses without padding",
        style="dim",
    )


def seeds(comparison: Comparison) -> str:
    """Say which seeds there were.

    Args:
        comparison: The comparison.

    Returns:
        For instance "seeds 0, 1, 2".
    """
    listed = ", ".join(map(str, comparison.seeds))
    return f"seed {listed}" if len(comparison.seeds) == 1 else f"seeds {listed}"


def examples(comparison: Comparison) -> Table:
    """Put some outputs beside what they should be.

    Args:
        comparison: The comparison.

    Returns:
        A table, a block an example; the differing ones first, as they say more.
    """
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, style="cyan")
    made.add_column(overflow="fold")
    finished = [run for run in comparison.runs if run.outputs]
    if not finished:
        return made
    for place in chosen_examples(comparison, finished):
        reference = comparison.references[place]
        made.add_row("source", Text(shortened(comparison.sources[place]), style="bold"))
        made.add_row("reference", shortened(reference))
        for run in finished:
            right = run.outputs[place] == reference
            made.add_row(run.name, Text(shortened(run.outputs[place]), style="green" if right else ""))
        made.add_row("", "")
    return made


def chosen_examples(comparison: Comparison, finished: list[Run]) -> list[int]:
    """Choose examples to show: spread over the data, half of them such that the variants differ.

    Args:
        comparison: The comparison.
        finished: The runs with outputs.

    Returns:
        Their places in the data, in its order.
    """
    everything = range(len(comparison.references))
    differing = [i for i in everything if len({run.outputs[i] for run in finished}) > 1]
    chosen = spread(differing, EXAMPLES // 2)
    return sorted({*chosen, *spread([i for i in everything if i not in chosen], EXAMPLES - len(chosen))})


def shortened(text: str) -> str:
    """Cut a text that would fill the screen, as outputs of untrained models do.

    Args:
        text: The text.

    Returns:
        At most `LONGEST_TEXT` characters.
    """
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def spread(places: list[int], count: int) -> list[int]:
    """Choose some at equal distances.

    Args:
        places: What to choose from.
        count: How many, at most.

    Returns:
        Those chosen.
    """
    count = min(count, len(places))
    return [places[(2 * i + 1) * len(places) // (2 * count)] for i in range(count)]


def failures(comparison: Comparison) -> Iterator[Text]:
    """Say what failed, and why.

    Args:
        comparison: The comparison.

    Yields:
        A line a run.
    """
    for run in comparison.runs:
        if run.error is not None:
            yield Text.assemble((f"{run.name} failed: ", "bold red"), run.error)
