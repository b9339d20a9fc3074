"""`zoo compare`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zoo.comparison.request.options import Option, Options
from zoo.comparison.request.options import options as option_table

from .output import VERBS, console, write_json
from .parameters import (
    PATH,
    VARIANT_NAME,
    Decorated,
    NamedPath,
    OneOf,
    Setting,
    arguments_for,
    data_options,
    decay_option,
    json_option,
    model_settings,
    refuse_with,
    settings_option,
    together,
    training_option,
)

if TYPE_CHECKING:
    from zoo.comparison import Comparison


def click_option(name: str, option: Option, default: Any) -> Callable[[Decorated], Decorated]:
    """Make an option of a comparison one of the command line; its help has the default where that is None or empty."""
    if option.kind == "flag":
        return click.option(str(option.flag), name, is_flag=True, help=option.about)
    kinds = {"count": click.IntRange(min=1), "path": PATH, "settings": Setting(), "number": int, "real": float}
    spellings = [flag for flag in (option.flag, option.short) if flag is not None]
    several = option.kind in ("values", "settings")
    return click.option(
        *(*spellings, name),
        type=OneOf(name, option.choices) if option.choices else kinds.get(option.kind, str),
        default=None if several else default,
        show_default=default is not None,
        multiple=several,
        metavar=option.metavar,
        help=option.about,
    )


def comparison_options(*names: str) -> Callable[[Decorated], Decorated]:
    found = {field.name: (field.metadata["option"], field.default) for field in fields(Options)}
    own = [name for name, (option, _) in found.items() if option.flag is not None and not option.is_shared]
    return together(*(click_option(name, *found[name]) for name in found if name in (names or own)))


@click.command("compare")
@click.argument("names", nargs=-1, type=VARIANT_NAME, metavar="NAME...")
@data_options
@training_option
@decay_option
@settings_option
@comparison_options()
@click.option(
    "--report-only",
    type=PATH,
    metavar="DIR",
    help="Print the comparison that is in this folder, rewrite its report, and run nothing.",
)
@click.option(
    "--repeat",
    type=NamedPath(exists=True),
    metavar="results.json",
    help="Run a recorded comparison again, in another folder (-o), on data with the same hash (--data, where they have "
    "moved), and report for each number whether it came out equal.",
)
@click.option(
    "--tex-columns", metavar="A,B,...", help="The metrics of the table in results.tex, by their names in results.csv."
)
@click.option("--timings", is_flag=True, help="Print how long each phase of a run took, too.")
@click.option("--quiet", is_flag=True, help="No progress bars.")
@json_option
def compare(
    names: tuple[str, ...],
    training: tuple[tuple[str, Any], ...],
    decay: str | None,
    settings: tuple[tuple[str, Any], ...],
    launch_with: tuple[tuple[str, Any], ...],
    report_only: Path | None,
    repeat: Path | None,
    tex_columns: str | None,
    timings: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Train variants with the same seeds, data and budget, side by side.

    Each NAME may carry settings: vanilla+faithful, pre-norm:position=rotary. Each variant is trained with each seed in
    its own process, evaluated on held-out examples, saved, and loaded again in another process.

    The same command again goes on where it was interrupted, and repeats nothing that is finished; with more names or
    seeds, it extends the comparison.
    """
    from zoo.base.files import write_json as write_json_file
    from zoo.comparison import Comparison, write_files
    from zoo.comparison import compare as run_comparison
    from zoo.comparison.repeating import REPEATED, compare_numbers, require_same_data, sentences

    chosen = None if tex_columns is None else [name.strip() for name in tex_columns.split(",")]
    shown = ("tex_columns", "timings", "quiet", "as_json")
    refuse_with("report_only", *shown)
    how = (name for name, one in option_table().items() if not one.repeats)
    refuse_with("repeat", "data", "heldout", "output_dir", *how, *shown)
    if report_only is not None:
        found = Comparison.read(report_only)
        write_files(found, tex_columns=chosen)
        return report(found, timings=timings, as_json=as_json)

    recorded = None
    if repeat is not None:
        recorded = Comparison.read(repeat.parent if repeat.is_file() else repeat)
        names, training, settings, options = repeated_options(recorded, options)
    given = [*training, *([] if decay is None else [("decay", decay)])]
    arguments: dict[str, Any] = {**options, "settings": model_settings(settings), "launch_with": dict(launch_with)}
    arguments |= arguments_for(given, run_comparison)
    if recorded is not None:
        require_same_data(recorded, {**options, "names": names})
    tell = None if quiet else partial(click.echo, err=True)
    on_run = None if quiet else announce
    comparison = run_comparison(names, **arguments, progress=not quiet, on_run=on_run, tell=tell)
    if chosen is not None:
        write_files(comparison, tex_columns=chosen)
    code = report(comparison, timings=timings, as_json=as_json)
    if recorded is None:
        return code
    numbers = compare_numbers(recorded, comparison)
    write_json_file(comparison.folder / REPEATED, [{**asdict(one), "equal": one.equal} for one in numbers])
    for sentence in sentences(numbers):
        click.echo(sentence, err=as_json)
    return code or int(not all(one.equal for one in numbers))


def announce(number: int, total: int, label: str) -> None:
    click.secho(f"[{number}/{total}] {label}", bold=True, err=True)


def repeated_options(recorded: Comparison, given: dict[str, Any]) -> tuple[Any, Any, Any, dict[str, Any]]:
    from zoo.base.errors import ConfigError

    context = click.get_current_context()
    found = context.command.make_context("compare", recorded.command[2:]).params
    sources = {name: context.get_parameter_source(name) for name in given}
    options = {name: (found if sources[name] is ParameterSource.DEFAULT else given)[name] for name in given}
    options["output_dir"] = given["output_dir"] or Path(f"{recorded.folder.name}-repeated")
    if options["output_dir"].resolve() == recorded.folder.resolve():
        raise ConfigError(f"{recorded.folder} holds the recorded comparison; choose another folder (-o)")
    return found["names"], found["training"], found["settings"], options


def report(comparison: Comparison, *, timings: bool, as_json: bool) -> int:
    """Print a comparison, and return the exit code: 1 if a run has failed."""
    from zoo.comparison import show
    from zoo.comparison.display.terminal import timings_table

    if as_json:
        write_json(json.loads((comparison.folder / "results.json").read_text(encoding="utf-8")))
    else:
        show(comparison, console())
        if timings:
            console().print(timings_table(comparison))
        click.echo(f"\nreport.html, results.{{json,csv,md,tex}} and the checkpoints are in {comparison.folder}")
        click.echo(f"To go on:\n{next_commands(comparison)}")
    return 1 if comparison.failed else 0


def next_commands(comparison: Comparison) -> str:
    from zoo.comparison import summarize
    from zoo.comparison.files import CHECKPOINT
    from zoo.data.tasks import find_task

    folder, best = relative(comparison.folder), summarize(comparison).best
    lines = [f"  open {folder / 'report.html'} in a browser"]
    if best is not None:
        task = find_task(comparison.task, comparison.recipe.get("task_options"))
        texts = sorted(comparison.sources, key=lambda text: ("'" in text, len(text)))[:1]
        verb = VERBS.get(task.model_task) if texts else None
        model = str(relative(comparison.folder / best.finished[0].folder / CHECKPOINT))
        lines.append(f"  {shlex.join(['zoo', verb, model, *texts] if verb else ['zoo', 'evaluate', model])}")
    if len(comparison.seeds) == 1 and len(comparison.names) > 1:
        words = [str(relative(Path(word))) if Path(word).is_absolute() else word for word in comparison.command]
        lines.append(f"  {shlex.join(words).replace(f'--seed {comparison.seeds[0]}', '--seeds 3')}")
    return "\n".join(lines)


def relative(folder: Path) -> Path:
    """Write a folder as the user would."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
