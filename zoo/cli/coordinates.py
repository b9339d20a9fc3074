"""`zoo coordinates`."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
from rich.text import Text

from .output import answer, table
from .parameters import VARIANT_NAME, json_option, task_option


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
    data = {"growth": growth(found), "widths": [dataclasses.asdict(one) for one in found]}
    answer(as_json, data, table(columns, rows, right=columns), verdict)
