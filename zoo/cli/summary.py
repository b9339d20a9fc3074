"""`zoo summary`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from .importing import without_collecting
from .output import table, width, write, write_json
from .parameters import json_option, task_option

if TYPE_CHECKING:
    from zoo.inside.layers import Shape, SummaryRow

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
    with without_collecting():
        from zoo.inside import summary as summarise

    found = summarise(name, task, depth=depth, batch_size=batch_size, seq_len=seq_len, fold=not every_layer)
    if as_json:
        write_json(found.to_dict())
        return
    columns = width()
    if columns is not None and columns < WIDE:
        rows = [(label(row), shape_text(row.output_shape), count(row)) for row in found.rows]
        write(table(("Module", "Output", "Parameters"), rows, right=("Parameters",)))
    else:
        wide = [
            (label(row), row.kind, shape_text(row.input_shape), shape_text(row.output_shape), count(row))
            for row in found.rows
        ]
        write(table(("Module", "Class", "Input", "Output", "Parameters"), wide, right=("Parameters",)))
    for row in found.rows:
        if row.shared_with:
            write(Text(f"{row.path} uses what {row.shared_with} has.", style="dim"))
    write(Text(f"\n{found.name}: {found.total:,} parameters, {found.trainable:,} of them trained", style="bold"))


def label(row: SummaryRow) -> str:
    """Name a module by its place among others.

    Returns:
        Its own name, indented; of a layer its number, too.
    """
    path, _, own = row.path.rpartition(".")
    name = f"{path.rpartition('.')[2]}.{own}" if path.endswith(".layers") else own
    return "  " * (row.depth - row.path.count("layers.")) + name


def shape_text(shape: Shape | None) -> str:
    """Write a shape.

    Args:
        shape: The shape.

    Returns:
        For instance "1×128×512".
    """
    return "×".join(map(str, shape or ()))


def count(row: SummaryRow) -> str:
    """Write how many parameters a row stands for.

    Returns:
        A number, with the number of layers that have as many; "shared" where all have been counted before.
    """
    if row.shared_with:
        return "shared"
    times = f"{row.times} × " if row.times > 1 else ""
    return f"{times}{row.parameters:,}" if row.parameters else ""
