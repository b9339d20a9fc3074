"""`zoo build`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .output import write_json
from .parameters import BUILT_NAME, PATH, json_option, once, settings_option, task_option


@click.command("build")
@click.argument("name", type=BUILT_NAME, metavar="NAME")
@click.option("-o", "--output", required=True, type=PATH, metavar="DIR", help="The folder to save it in.")
@task_option()
@click.option("--seed", type=int, metavar="N", help="Makes the weights reproducible.")
@settings_option
@click.option("--force", is_flag=True, help="Replace the saved model that is in the folder.")
@json_option
def build(
    name: str, output: Path, settings: tuple[tuple[str, Any], ...], force: bool, as_json: bool, **options: Any
) -> None:
    """Build a new model and save it.

    The folder gets a config.json and a model.safetensors with random weights, and is written whole or not at all.
    """
    from zoo.base.folders import check_output, written_whole
    from zoo.building.dispatch import build as build_model
    from zoo.models import TASK_CLASSES

    fields = once(settings)
    if own := fields.keys() & {"model", "name", "task", "seed"}:
        raise click.UsageError(f"--set takes fields of the configuration, and {min(own)} is none")
    check_output(output, force=force)
    model = build_model(name, **options, **fields)
    with written_whole(output, force=force) as folder:
        model.save_pretrained(folder)
    files = {file.name: file.stat().st_size for file in sorted(output.iterdir())}
    auto_class = next(auto for auto, model_class in TASK_CLASSES.values() if isinstance(model, model_class))
    if as_json:
        write_json(
            {
                "name": name,
                "path": str(output.resolve()),
                "model_class": type(model).__name__,
                "auto_class": auto_class,
                "num_parameters": model.num_parameters(),
                "files": files,
            }
        )
        return
    size = sum(files.values()) / 1e6
    click.echo(f"{output}: {name}, {model.num_parameters():,} parameters, {size:,.1f} MB ({', '.join(files)})")
    click.echo("To load it in Python:")
    click.echo(f"  import zoo; from transformers import {auto_class}")
    click.echo(f"  model = {auto_class}.from_pretrained({str(output)!r})")
