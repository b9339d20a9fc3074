"""`zoo env`."""

from __future__ import annotations

import click

from .output import heading, indented, table, write, write_json
from .parameters import json_option


@click.command("env")
@json_option
def env(as_json: bool) -> None:
    """Show versions, plugins and devices, for bug reports."""
    from zoo.analysis.environment import environment, version_line

    found = environment()
    if as_json:
        write_json(found)
        return
    click.echo(version_line())
    for section, rows in found.items():
        lines = [(key, value or "not installed") for key, value in rows.items()] or [("none", "")]
        write(heading(section.capitalize()), indented(table(("", ""), lines)))
