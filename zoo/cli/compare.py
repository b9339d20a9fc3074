"""`zoo compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .output import console, write_json
from .parameters import Setting, VariantName, json_option


@click.command("compare")
@click.argument("names", nargs=-1, required=True, type=VariantName(), metavar="NAME...")
@click.option(
    "--task",
    metavar="TASK[:OPTION=VALUE,...]",
    help="What to train them on; by default what the recipe says, and without one, translation.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), help="A file or folder of examples; by default what ships with the zoo."
)
@click.option(
    "--heldout", type=click.Path(path_type=Path), help="The file to evaluate on; by default what --data says."
)
@click.option("--columns", metavar="A,B", help="Names or numbers of the columns; by default the first ones.")
@click.option("--tokenizer", metavar="KIND|DIR", help="bpe, word or character, or a folder with a tokenizer.json.")
@click.option(
    "--recipe", metavar="NAME|FILE", help="What is not said here; by default the recipe called like the task."
)
@click.option(
    "--set",
    "arguments",
    multiple=True,
    type=Setting(),
    help="A training argument of transformers, e.g. num_train_epochs=4.",
)
@click.option(
    "--model",
    "settings",
    multiple=True,
    type=Setting(),
    help="A configuration field that all variants get, e.g. hidden_size=256.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of weights, dropout and data.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Where checkpoints and results.json go.  [default: outputs/compare-TASK]",
)
@click.option("--quiet", is_flag=True, help="No progress bars.")
@json_option
def compare(
    names: tuple[str, ...],
    task: str | None,
    data: Path | None,
    heldout: Path | None,
    columns: str | None,
    tokenizer: str | None,
    recipe: str | None,
    arguments: tuple[tuple[str, Any], ...],
    settings: tuple[tuple[str, Any], ...],
    seed: int,
    output: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Train variants under the same seed, data and budget, side by side.

    Each NAME may carry settings: vanilla+faithful, pre-norm:position=rotary. Each variant is trained in a process of
    its own, evaluated on held-out examples, saved, and loaded again in a fresh process.
    """
    from zoo.comparison import compare as run_comparison
    from zoo.comparison import show

    def announce(number: int, total: int, name: str) -> None:
        if not quiet:
            click.secho(f"[{number}/{total}] {name}", bold=True, err=True)

    comparison = run_comparison(
        names,
        task,
        data=data,
        heldout=heldout,
        columns=read_columns(columns),
        tokenizer=tokenizer,
        recipe=recipe,
        settings=dict(settings),
        output_dir=output,
        seed=seed,
        progress=not quiet,
        on_run=announce,
        **dict(arguments),
    )
    if as_json:
        write_json(json.loads((comparison.folder / "results.json").read_text(encoding="utf-8")))
    else:
        show(comparison, console())
        click.echo(f"\nCheckpoints and results.json are in {comparison.folder}")
    return 1 if any(run.failed for run in comparison.runs) else 0


def read_columns(text: str | None) -> list[str | int] | None:
    """Read the value of `--columns`.

    Args:
        text: For instance "en,pt" or "0,1".

    Returns:
        Names or numbers, None where nothing was given.
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    return [int(name) for name in names] if all(name.isdigit() for name in names) else list(names)
