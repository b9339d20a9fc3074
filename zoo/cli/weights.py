"""`zoo weights`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import answer, hide_progress_bars, is_narrow, table, write, write_json
from .parameters import EXISTING_FOLDER, PATH, json_option, refuse_with, task_option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from zoo.registry import Weights
    from zoo.training.reproduce import ScoreComparison, Verification

HEADINGS = ("Name", "Task", "What it does", "Parameters", "Score", "Size", "Where")

WIDE = 180  # From how many columns all of these are shown


@click.group("weights", invoke_without_command=True)
@json_option
@click.pass_context
def weights(ctx: click.Context, as_json: bool) -> None:
    """List weights by name, make them again, and verify them.

    The name of weights works wherever a verb takes a checkpoint's folder: `zoo generate vanilla.en-pt TEXT`. Without a
    further word, all of them are listed.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_them, patterns=(), task=None, as_json=as_json, markdown=False)


@weights.command("list")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@task_option("Only weights of models for this task.")
@click.option("--markdown", is_flag=True, help="Print the tables of the documentation.")
@json_option
def list_them(patterns: tuple[str, ...], task: str | None, markdown: bool, as_json: bool) -> None:
    """List weights.

    A PATTERN is a name with wildcards ('*.en-pt'); one that begins with '!' leaves out what it matches.
    """
    if markdown:
        refuse_with("markdown", "patterns", "task")
    from zoo.base.errors import suggest
    from zoo.building.weights.tables import to_markdown
    from zoo.registry import WEIGHTS, find_weights, list_weights

    found = [find_weights(name) for name in list_weights(patterns or "*", task=task)]
    if as_json:
        write_json([asdict(one) for one in found])
    elif markdown:
        click.echo(to_markdown(found), nl=False)
    elif not found:
        wanted = " ".join(patterns)
        click.echo(f"zoo: no weights match{f' {wanted!r}' if wanted else ''}{suggest(wanted, WEIGHTS)}", err=True)
    elif is_narrow(WIDE):
        write(table(("Name", "Score", "What it does"), [short_row(one) for one in found]))
    else:
        write(table(HEADINGS, [row(one) for one in found], right=("Parameters", "Size")))


def row(one: Weights) -> tuple[str, ...]:
    from zoo.building.weights.tables import in_words, place_of, scores_text

    number, size = in_words(one.num_parameters, ""), in_words(one.size, "B")
    return one.name, one.task, one.summary, number, scores_text(one), size, place_of(one)


def short_row(one: Weights) -> tuple[str | Text, ...]:
    """Lay out the columns that fit a terminal; `zoo weights show` prints the rest."""
    from rich.text import Text

    from zoo.building.weights.tables import main_score, place_of

    score = main_score(one)
    place = (f" [{place_of(one)}]", "dim") if one.on_hub else ""
    return one.name, f"{score.name} {score}" if score else "", Text.assemble(one.summary, place)


@weights.command("show")
@click.argument("name", metavar="NAME")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show everything that is known about weights."""
    from zoo.registry import find_weights

    show_weights(find_weights(name), as_json=as_json)


def show_weights(one: Weights, *, as_json: bool) -> None:
    from zoo.building.weights.tables import facts

    scores = [(score.name, str(score), score.interval_text, score.signature) for score in one.scores.values()]
    headings = ("Held-out examples", "Score", "95 % interval", "Signature")
    shown: list[RenderableType] = ["", table(headings, scores, right=("Score",))] if scores else []
    answer(as_json, asdict(one), f"{one.name}  {one.summary}\n", table(("", ""), facts(one)), *shown)


@weights.command("make")
@click.argument("name", metavar="NAME")
@click.option("--output", "-o", type=PATH, metavar="DIR", help="[default: outputs/weights-NAME]")
@click.option(
    "--trained",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="A folder in which the command that trains them has been run already.",
)
@click.option("--force", is_flag=True, help="Replace the weights that are in the folder.")
@json_option
def make(name: str, output: Path | None, trained: Path | None, force: bool, as_json: bool) -> None:
    """Train weights again by their record, and check that their scores are within noise of the recorded ones.

    An interrupted training goes on when the same command is given again.
    """
    from zoo.training.reproduce import make_weights

    hide_progress_bars()
    out = output if output is not None else Path("outputs") / f"weights-{name}"
    made, scores = make_weights(name, out, trained=trained, force=force)
    data = {"path": str(out.resolve()), **asdict(made), "comparison": [score.to_dict() for score in scores]}
    line = f"{out}: {made.name}, {made.num_parameters:,} parameters, stored as {made.dtype}"
    answer(as_json, data, line, comparison(scores))


def comparison(scores: Iterable[ScoreComparison]) -> Table:
    words = {True: "within noise", False: "beyond noise", None: ""}
    rows = []
    for score in scores:
        recorded = ("", "") if score.recorded is None else (str(score.recorded), score.recorded.interval_text)
        rows.append((score.found.name, str(score.found), *recorded, words[score.within_noise]))
    return table(("", "Now", "Recorded", "95 % interval", ""), rows, right=("Now", "Recorded"))


@weights.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Files and outputs on a fixed input only, no scores.")
@json_option
def verify(names: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Compare weights with their records: every file's hash, outputs on a fixed input, and scores.

    By default all with files on this machine.
    """
    from zoo.base.errors import enumerate_names
    from zoo.training.reproduce import MakingError, verify_weights

    hide_progress_bars()
    found = verify_weights(names or None, scores=not quick)
    rows = [(one.name, "ok" if one.holds else "BAD", result_of(one)) for one in found]
    answer(as_json, [one.to_dict() for one in found], table(("", "", ""), rows))
    if failing := [one.name for one in found if not one.holds]:
        raise MakingError(f"not what was recorded: {enumerate_names(failing)}")


def result_of(one: Verification) -> str:
    others = ("" if score.same else f" (recorded: {score.recorded})" for score in one.scores)
    scores = (f"{score.found.name} {score.found}{other}" for score, other in zip(one.scores, others, strict=True))
    return one.problem or one.unchecked or ", ".join(scores)
