"""`zoo params`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from .output import table, width, write, write_json
from .parameters import VariantName, json_option, task_option

if TYPE_CHECKING:
    from zoo.parameters import ModuleRow

WIDE = 100
"""From how many columns parameters have names and numbers a module."""


@click.command("params")
@click.argument("name", type=VariantName(), metavar="NAME")
@task_option()
@click.option("--every-layer", is_flag=True, help="A row for each layer's modules instead of one for all layers.")
@json_option
def params(name: str, task: str | None, every_layer: bool, as_json: bool) -> None:
    """Count a variant's parameters, module by module.

    Nothing is allocated. What several modules share is counted once.
    """
    from zoo.parameters import by_module, count_by_parameter

    counted = count_by_parameter(name, task)
    if as_json:
        write_json(counted.to_dict())
        return
    modules = by_module(counted, fold=not every_layer)
    columns = width()
    if columns is not None and columns < WIDE:
        narrow = [(row.name, shapes(row, named=False), total(row)) for row in modules]
        write(table(("Module", "Shapes", "Total"), narrow, right=("Total",)))
    else:
        rows = [(row.name, shapes(row), f"{row.count:,}", str(row.times), total(row)) for row in modules]
        write(table(("Module", "Shapes", "Parameters", "Times", "Total"), rows, right=("Parameters", "Times", "Total")))
    for row in modules:
        if row.shared_with:
            write(Text(f"{row.name} uses what {row.shared_with} has.", style="dim"))
    write(Text(f"\n{counted.name} for {counted.task}: {counted.total:,} parameters", style="bold"))
    if counted.active != counted.total:
        write(Text(f"{counted.active:,} of them for any one token, which does not see all experts"))
    write(Text(f"{counted.non_embedding:,} without embeddings of tokens and positions"))


def shapes(row: ModuleRow, *, named: bool = True) -> str:
    """Write the shapes of a module's parameters.

    Args:
        row: The module.
        named: Whether to say which is which.

    Returns:
        For instance "weight 2048×512, bias 2048", or without names "2048×512 + 2048".
    """
    sizes = {key: "×".join(map(str, shape)) for key, shape in row.shapes.items()}
    return ", ".join(f"{key} {size}" for key, size in sizes.items()) if named else " + ".join(sizes.values())


def total(row: ModuleRow) -> str:
    """Write how many parameters a row stands for.

    Returns:
        A number, or "shared" where all have been counted before.
    """
    return f"{row.count * row.times:,}" if row.count else "shared"
