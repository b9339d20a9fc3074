"""`zoo build` and `zoo new`."""

import shlex
from pathlib import Path
from typing import Any

import click

from .output import echo
from .parameters import BUILT_NAME, PATH, json_option, once, settings_option, task_option, together


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
    number, size = model.num_parameters(), sum(files.values()) / 1e6
    classes = {"model_class": type(model).__name__, "auto_class": auto_class}
    echo(
        as_json,
        {"name": name, "path": str(output.resolve()), **classes, "num_parameters": number, "files": files},
        f"{output}: {name}, {number:,} parameters, {size:,.1f} MB ({', '.join(files)})",
        f"To load it in Python:\n  import zoo; from transformers import {auto_class}",
        f"  model = {auto_class}.from_pretrained({str(output)!r})",
    )


PARTS = {
    "norm": "A normalisation.",
    "position": "A position encoding.",
    "activation": "An activation of feed-forward networks.",
    "mixer": "Token mixing without attention, with its state in the cache.",
    "variant": "A variant.",
}


@click.group("new")
def new() -> None:
    """Write a package with a new part or variant, and its tests."""


@new.command("plugin")
@together(*(click.option(f"--{kind}", "kind", flag_value=kind, help=help) for kind, help in PARTS.items()))
@click.argument("folder", type=PATH, metavar="DIR")
@json_option
def plugin(kind: str | None, folder: Path, as_json: bool) -> None:
    """Write a package with one part or one variant, and tests that it passes.

    The name of DIR becomes the name of the package and of what it registers.
    """
    from zoo.testing.new_plugin import new_plugin

    if kind is None:
        raise click.UsageError(f"no kind of plugin: give one of {', '.join(f'--{kind}' for kind in PARTS)}")
    variant, files = new_plugin(kind, folder)
    data, place = {"path": str(folder.resolve()), "variant": variant}, shlex.quote(str(folder))
    echo(
        as_json,
        {**data, "files": [file.name for file in files]},
        f"Wrote {', '.join(map(str, files))}. To test, install and use it:",
        f"  python -m pytest {place}\n  pip install {place}\n  zoo show {shlex.quote(variant)}",
    )
