"""`zoo compare`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .output import VERBS, console, write_json
from .parameters import (
    Setting,
    VariantName,
    arguments_for,
    data_options,
    json_option,
    model_settings,
    settings_option,
    training_option,
)
from .spelling import RenamedOption

if TYPE_CHECKING:
    from zoo.comparison import Comparison


@click.command("compare")
@click.argument("names", nargs=-1, type=VariantName(), metavar="NAME...")
@click.option(
    "--task",
    metavar="TASK[:OPTION=VALUE,...]",
    help="What to train them on (zoo tasks); by default what the recipe says, and without one, translation.",
)
@data_options
@training_option
@settings_option
@click.option("--seeds", default="1", metavar="N|A,B,...", show_default=True, help="How many seeds, or which ones.")
@click.option("--seed", default=0, show_default=True, help="The first seed, of weights, dropout and the order of data.")
@click.option(
    "--budget",
    metavar="KIND=NUMBER",
    help="How long every run is: steps=, tokens=, flops= or seconds=; by default what the recipe says.",
)
@click.option(
    "--match",
    type=click.Choice(["none", "params", "flops"]),
    default="none",
    show_default=True,
    help="What is made equal to the baseline's within 1 %, by other sizes: parameters, or FLOPs per token.",
)
@click.option(
    "--match-by",
    type=click.Choice(["width", "intermediate", "depth"]),
    help="Which size may change; by default whichever leads to it.",
)
@click.option(
    "--sweep",
    multiple=True,
    metavar="ARGUMENT=A,B,...",
    help="Choose a training argument for each variant among these values, e.g. lr=1e-3,5e-4, before it is compared.",
)
@click.option("--baseline", metavar="NAME", help="What the others are measured against.  [default: the first]")
@click.option("--jobs", "-j", type=click.IntRange(min=1), default=1, show_default=True, help="Runs at a time.")
@click.option(
    "--launcher",
    type=click.Choice(["local", "ray", "submitit"]),
    default="local",
    show_default=True,
    help="Where runs happen: in processes of this machine, or where one of these engines puts them.",
)
@click.option(
    "--launch-with",
    multiple=True,
    type=Setting(),
    help="An option of the engine, e.g. num_gpus=1 for ray, slurm_partition=gpu for submitit.",
)
@click.option(
    "--output",
    "-o",
    cls=RenamedOption,
    former="--output-dir",
    type=click.Path(path_type=Path),
    help="Where checkpoints and results.json go.  [default: outputs/compare-TASK]",
)
@click.option(
    "--report-only",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Print the comparison that is in this folder, write its report anew, and run nothing.",
)
@click.option("--quiet", is_flag=True, help="No progress bars.")
@json_option
def compare(
    names: tuple[str, ...],
    task: str | None,
    data: Path | None,
    heldout: Path | None,
    columns: list[str | int] | None,
    tokenizer: str | None,
    recipe: str | None,
    training: tuple[tuple[str, Any], ...],
    settings: tuple[tuple[str, Any], ...],
    seeds: str,
    seed: int,
    budget: str | None,
    match: str,
    match_by: str | None,
    sweep: tuple[str, ...],
    baseline: str | None,
    jobs: int,
    launcher: str,
    launch_with: tuple[tuple[str, Any], ...],
    output: Path | None,
    report_only: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Train variants with the same seeds, data and budget, side by side.

    Each NAME may carry settings: vanilla+faithful, pre-norm:position=rotary. Each variant is trained with each seed in
    a process of its own, evaluated on held-out examples, saved, and loaded again in another process.

    The same command again goes on where it was interrupted, and repeats nothing that is finished; with more names or
    seeds, it extends the comparison.
    """
    from zoo.comparison import Comparison, write_files
    from zoo.comparison import compare as run_comparison

    if report_only is not None:
        if names:
            raise click.UsageError("--report-only takes a folder, and no names")
        found = Comparison.read(report_only)
        write_files(found)
        return report(found, as_json=as_json)

    def announce(number: int, total: int, label: str) -> None:
        if not quiet:
            click.secho(f"[{number}/{total}] {label}", bold=True, err=True)

    def tell(sentence: str) -> None:
        if not quiet:
            click.echo(sentence, err=True)

    comparison = run_comparison(
        names,
        task,
        data=data,
        heldout=heldout,
        columns=columns,
        tokenizer=tokenizer,
        recipe=recipe,
        settings=model_settings(settings),
        seeds=seeds,
        seed=seed,
        budget=budget,
        match=match,
        match_by=match_by,
        sweep=sweep,
        baseline=baseline,
        jobs=jobs,
        launcher=launcher,
        launch_with=dict(launch_with),
        output_dir=output,
        progress=not quiet,
        on_run=announce,
        tell=tell,
        **arguments_for(training, run_comparison),
    )
    return report(comparison, as_json=as_json)


def report(comparison: Comparison, *, as_json: bool) -> int:
    """Print a comparison.

    Args:
        comparison: The comparison.
        as_json: Whether to print JSON.

    Returns:
        The exit code: 1 where a run has failed.
    """
    from zoo.comparison import show

    if as_json:
        write_json(json.loads((comparison.folder / "results.json").read_text(encoding="utf-8")))
    else:
        show(comparison, console())
        click.echo(f"\nreport.html, results.{{json,csv,md,tex}} and the checkpoints are in {comparison.folder}")
        click.echo(f"To go on:\n{next_commands(comparison)}")
    return 1 if comparison.failed else 0


def next_commands(comparison: Comparison) -> str:
    """Say what to do with a comparison.

    Args:
        comparison: The comparison.

    Returns:
        Commands, one a line: for the best model, and for more certainty; and where the report is.
    """
    from zoo.comparison import summarize
    from zoo.comparison.files import CHECKPOINT
    from zoo.tasks import find_task

    folder, best = relative(comparison.folder), summarize(comparison).best
    lines = [f"  open {folder / 'report.html'} in a browser"]
    if best is not None:
        task = find_task(comparison.task, comparison.recipe.get("task_options"))
        texts = sorted(comparison.sources, key=lambda text: ("'" in text, len(text)))[:1]
        verb = VERBS.get(task.model_task) if texts else None
        model = str(relative(comparison.folder / best.finished[0].folder / CHECKPOINT))
        lines.append(f"  {shlex.join(['zoo', verb, model, *texts] if verb else ['zoo', 'evaluate', model])}")
    if len(comparison.seeds) == 1 and len(comparison.names) > 1:
        words = [str(folder) if word == str(comparison.folder) else word for word in comparison.command]
        lines.append(f"  {shlex.join(words).replace(f'--seed {comparison.seeds[0]}', '--seeds 3')}")
    return "\n".join(lines)


def relative(folder: Path) -> Path:
    """Write a folder as the user would.

    Args:
        folder: The folder.

    Returns:
        Its path from here if it is below, else the whole one.
    """
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
