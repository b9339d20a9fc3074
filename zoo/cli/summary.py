"""`zoo summary`."""

from __future__ import annotations

import click
from rich.text import Text

from .output import table, width, write, write_json
from .parameters import json_option, task_option

WIDE = 100
"""From how many columns input shapes and classes are shown."""


@click.command("summary")
@click.argument("name", metavar="NAME|DIR")
@task_option()
@click.option("--depth", type=click.IntRange(1), help="How deep to go; by default to what a layer is made of.")
@click.option("--every-layer", is_flag=True, help="Rows for every layer instead of once for all that are alike.")
@click.option("--batch-size", default=1, show_default=True, type=click.IntRange(1), help="How many examples to run.")
@click.option("--seq-len", default=128, show_default=True, type=click.IntRange(1), help="How long they are.")
@json_option
def summary(
    name: str, task: str | None, depth: int | None, every_layer: bool, batch_size: int, seq_len: int, as_json: bool
) -> None:
    """Show a model's layers, the shapes that pass through them, and parameters.

    NAME is a variant, DIR a checkpoint's folder. Nothing is allocated. What several modules share is counted once.
    """
    from zoo.inside import summary as summarise
    from zoo.inside.layers import HEADINGS, shape_text

    found = summarise(name, task, depth=depth, batch_size=batch_size, seq_len=seq_len, fold=not every_layer)
    if as_json:
        write_json(found.to_dict())
        return
    columns = width()
    if columns is not None and columns < WIDE:
        rows = [(row.label, shape_text(row.output_shape), row.count) for row in found.rows]
        write(table(("Module", "Output", "Parameters"), rows, right=("Parameters",)))
    else:
        write(table(HEADINGS, [row.cells() for row in found.rows], right=HEADINGS[-1:]))
    for remark in found.remarks():
        write(Text(remark, style="dim"))
    write(Text(f"\n{found.name}: {found.totals}", style="bold"))
