"""`zoo summary`, `zoo params` and `zoo coordinates`."""

from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from .output import answer, is_narrow, table
from .parameters import VARIANT_NAME, VARIANT_OR_SAVED, json_option, task_option

WIDE = 100  # From how many columns input shapes and classes, or names and numbers of parameters, are shown


@click.command("summary")
@click.argument("name", metavar="NAME|DIR")
@task_option()
@click.option("--depth", type=click.IntRange(1), help="Depth of modules; by default down to the parts of a layer.")
@click.option("--every-layer", is_flag=True, help="Rows for every layer instead of once for all that are alike.")
@click.option("--batch-size", default=1, show_default=True, type=click.IntRange(1), help="How many examples to run.")
@click.option("--seq-len", default=128, show_default=True, type=click.IntRange(1), help="How long they are, at most.")
@json_option
def summary(name: str, task: str | None, every_layer: bool, as_json: bool, **options: Any) -> None:
    """Show a model's layers, the shapes that pass through them, and parameters.

    NAME is a variant or the name of weights, DIR a checkpoint's folder. Nothing is allocated. What several modules
    share is counted once.
    """
    from zoo.building.weights import is_saved
    from zoo.inside import summary as summarise
    from zoo.inside.layers import HEADINGS, shape_text

    if task is not None and is_saved(name):
        raise click.UsageError("--task is what a variant is built for; a checkpoint has its own head")
    found = summarise(name, task, fold=not every_layer, **options)
    if is_narrow(WIDE):
        rows = [(row.label, shape_text(row.output_shape), row.count) for row in found.rows]
        shown = table(("Module", "Output", "Parameters"), rows, right=("Parameters",))
    else:
        shown = table(HEADINGS, [row.cells() for row in found.rows], right=HEADINGS[-1:])
    remarks = [Text(remark, style="dim") for remark in found.remarks()]
    answer(as_json, found.to_dict(), shown, *remarks, Text(f"\n{found.name}: {found.totals}", style="bold"))


@click.command("params")
@click.argument("name", type=VARIANT_OR_SAVED, metavar="NAME|DIR")
@task_option()
@click.option("--every-layer", is_flag=True, help="A row for each layer's modules instead of one for all layers.")
@json_option
def params(name: str, task: str | None, every_layer: bool, as_json: bool) -> None:
    """Count a model's parameters, module by module.

    NAME is a variant or the name of weights, DIR a checkpoint's folder. Nothing is allocated. What several modules
    share is counted once.
    """
    from zoo.analysis.parameters import MODULE_HEADINGS, by_module, count_by_parameter

    counted = count_by_parameter(name, task)
    modules = by_module(counted, fold=not every_layer)
    if is_narrow(WIDE):
        narrow = [(row.name, row.shapes_text(named=False), row.total_text) for row in modules]
        shown = table((*MODULE_HEADINGS[:2], "Total"), narrow, right=("Total",))
    else:
        rows = [(row.name, row.shapes_text(), f"{row.count:,}", str(row.times), row.total_text) for row in modules]
        shown = table(MODULE_HEADINGS, rows, right=MODULE_HEADINGS[2:])
    total = Text(f"\n{counted.name} for {counted.task}: {counted.total:,} parameters", style="bold")
    answer(as_json, counted.to_dict(), shown, total, *map(Text, counted.remarks(modules)))


@click.command("coordinates")
@click.argument("name", type=VARIANT_NAME, metavar="NAME")
@task_option()
@click.option("--widths", default="64,128,256", show_default=True, metavar="N,N,...", help="Hidden sizes to learn at.")
@click.option("--steps", default=4, show_default=True, type=click.IntRange(1), help="Number of updates.")
@click.option("--parametrization", type=click.Choice(["standard", "mup"]), help="By default that of NAME.")
@json_option
def coordinates(
    name: str, task: str | None, widths: str, steps: int, parametrization: str | None, as_json: bool
) -> None:
    """Check a parametrization: see whether what is learned grows with the width.

    One batch is learned at several widths, and the logits are compared.
    """
    from zoo.analysis.measuring.coordinates import check_coordinates, growth
    from zoo.base.errors import ConfigError

    if not all(part.strip().isdecimal() for part in widths.split(",")):
        raise ConfigError(f"--widths {widths} was given; it must be numbers with commas between them")
    settings: dict[str, Any] = {} if parametrization is None else {"parametrization": parametrization}
    sizes = tuple(sorted({int(part) for part in widths.split(",")}))
    found = check_coordinates(name, task, widths=sizes, steps=steps, mup_base_width=min(sizes), **settings)
    columns = ("Width", "Logits", "Change after 1 step", f"after {steps}")
    rows = [
        (str(one.width), f"{one.logits[0]:.3f}", f"{one.changes[0]:.3f}", f"{one.changes[-1]:.3f}") for one in found
    ]
    verdict = Text(f"\nThe first update's effect grows as width^{growth(found):.2f}; in muP it does not grow.")
    data = {"growth": growth(found), "widths": [asdict(one) for one in found]}
    answer(as_json, data, table(columns, rows, right=columns), verdict)
