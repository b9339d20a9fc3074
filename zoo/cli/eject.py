"""`zoo eject`."""

from __future__ import annotations

from pathlib import Path

import click

from .output import for_stdout, write_json
from .parameters import FILE, json_option, task_option


@click.command("eject")
@click.argument("model", metavar="NAME|DIR|REPO")
@click.option("-o", "--output", type=FILE, metavar="FILE", help="The file to write.")
@task_option("What the model is for; by default the variant's first task, or the saved head's.")
@click.option("--force", is_flag=True, help="Replace the file.")
@json_option
def eject(model: str, output: Path | None, task: str | None, force: bool, as_json: bool) -> None:
    """Write a model as one readable file of PyTorch.

    The file imports neither the zoo nor transformers, and has only what this model uses. It is run without the zoo and
    compared with the model before it is written: outputs, gradients and generated tokens. Without -o it is printed.
    """
    if force and output is None:
        raise click.UsageError("--force replaces the file that -o names: give it, too")
    from zoo.analysis.eject import eject as write_model

    ejected = write_model(model, output, task=task, force=force)
    if as_json:
        write_json({"file": output, "task": ejected.task, "differences": ejected.differences, "text": ejected.text})
    elif output is None:
        click.echo(for_stdout(ejected.text), nl=False)
    else:
        exact = ", ".join(f"{value:.0e} in {dtype}" for dtype, value in ejected.differences.items())
        lines = len(ejected.text.splitlines())
        click.echo(f"Wrote {output}: {lines} lines; outputs differ from the model's by at most {exact}.")
