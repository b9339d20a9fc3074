"""`zoo params`."""

from __future__ import annotations

import click
from rich.text import Text

from .output import table, width, write, write_json
from .parameters import VARIANT_NAME, json_option, task_option

WIDE = 100
"""From how many columns parameters have names and numbers a module."""


@click.command("params")
@click.argument("name", type=VARIANT_NAME, metavar="NAME")
@task_option()
@click.option("--every-layer", is_flag=True, help="A row for each layer's modules instead of one for all layers.")
@json_option
def params(name: str, task: str | None, every_layer: bool, as_json: bool) -> None:
    """Count a variant's parameters, module by module.

    Nothing is allocated. What several modules share is counted once.
    """
    from zoo.analysis.parameters import MODULE_HEADINGS, by_module, count_by_parameter

    counted = count_by_parameter(name, task)
    if as_json:
        write_json(counted.to_dict())
        return
    modules = by_module(counted, fold=not every_layer)
    columns = width()
    if columns is not None and columns < WIDE:
        narrow = [(row.name, row.shapes_text(named=False), row.total_text) for row in modules]
        write(table((*MODULE_HEADINGS[:2], "Total"), narrow, right=("Total",)))
    else:
        rows = [(row.name, row.shapes_text(), f"{row.count:,}", str(row.times), row.total_text) for row in modules]
        write(table(MODULE_HEADINGS, rows, right=MODULE_HEADINGS[2:]))
    write(Text(f"\n{counted.name} for {counted.task}: {counted.total:,} parameters", style="bold"))
    write(*map(Text, counted.remarks(modules)))
