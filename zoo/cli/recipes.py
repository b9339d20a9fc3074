"""`zoo recipes`."""

from __future__ import annotations

from dataclasses import asdict

import click

from .output import setting_text, table, value_text, write, write_json
from .parameters import json_option


@click.command("recipes")
@click.argument("name", required=False, metavar="[RECIPE]")
@json_option
def recipes(name: str | None, as_json: bool) -> None:
    """List the recipes that ship with the zoo, or show RECIPE.

    A recipe has all settings of a training run: --recipe NAME, or --recipe FILE for one of your own.
    """
    from zoo.training.recipe import load_recipe, shipped_recipes

    found = {one: load_recipe(one) for one in ([name] if name is not None else shipped_recipes())}
    if as_json:
        write_json({one: asdict(recipe) for one, recipe in found.items()})
    elif name is None:
        rows = [
            (one, recipe.task, ", ".join(map(setting_text, recipe.arguments.items()))) for one, recipe in found.items()
        ]
        write(table(("Recipe", "Task", "Training"), rows))
    else:
        said = [(section, value) for section, value in asdict(found[name]).items() if value]
        write(table(("", ""), [(section, value_text(value)) for section, value in said]))
