"""`zoo new`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from .output import write_json
from .parameters import PATH, json_option, together

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
    if as_json:
        write_json({"path": str(folder.resolve()), "variant": variant, "files": [file.name for file in files]})
        return
    place = shlex.quote(str(folder))
    click.echo(f"Wrote {', '.join(map(str, files))}. To test, install and use it:")
    click.echo(f"  python -m pytest {place}\n  pip install {place}\n  zoo show {shlex.quote(variant)}")
