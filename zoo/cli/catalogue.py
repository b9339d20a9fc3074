"""Catalogues: `zoo settings`, `zoo tasks`, `zoo tokenizers`, `zoo recipes`."""

from dataclasses import asdict, fields
from typing import Any

import click
from rich.console import RenderableType

from .output import answer, heading, setting_text, table, value_text, write, write_json
from .parameters import json_option


@click.command("settings")
@click.argument("name", required=False, metavar="[SETTING]")
@json_option
def settings(name: str | None, as_json: bool) -> None:
    """List what can be set, or the values that SETTING takes.

    Settings follow a name, pre-norm:position=rotary, or are given by --set position=rotary.
    """
    from zoo.building.settings import describe_setting, setting_cards

    if name is None:
        cards = setting_cards()
        if as_json:
            write_json([card.to_dict() for card in cards])
            return
        rows = [(card.name, value_text(card.default), card.description) for card in cards]
        write(table(("Setting", "Default", "What it is"), rows))
        write("\nA variant may have other defaults (zoo show NAME). zoo settings position lists what position can be.")
        return
    card = describe_setting(name)
    values: list[RenderableType] = [heading("Values"), table(("", ""), card.values.items())] if card.values else []
    lines = (f"{card.name}: {card.description}", f"Default: {value_text(card.default)}")
    answer(as_json, card.to_dict(), *lines, *values)


@click.command("tasks")
@json_option
def tasks(as_json: bool) -> None:
    """List what models are built for, and what they can be trained on.

    The first is --task of build, show and diff; the second is --task of train, compare and evaluate, with options
    after a colon: language-modeling:block_size=64.
    """
    from zoo.building.settings import first_line, member_docs
    from zoo.data.tasks import TASKS
    from zoo.registry.names import Task

    heads = member_docs(Task)
    trained, rows = [], []
    for name, task in ((name, TASKS.get(name)) for name in TASKS):
        models, summary = list(task.model_tasks), first_line(task)
        options = {option.name: getattr(task, option.name) for option in fields(task)}
        trained.append({"name": name, "model_tasks": models, "summary": summary, "options": options})
        shown = f"[{', '.join(map(setting_text, options.items()))}]" if options else ""
        rows.append((name, ", ".join(models), f"{summary} {shown}".strip()))
    headings = ("Task", "Model", "Examples, and options with defaults")
    built = (heading("What a model is built for"), table(("", ""), heads.items()))
    used = (heading("What it is trained on"), table(headings, rows))
    answer(as_json, {"models": heads, "training": trained}, *built, *used)


@click.command("tokenizers")
@json_option
def tokenizers(as_json: bool) -> None:
    """List the kinds of tokenizers that can be trained.

    --tokenizer takes a kind, possibly with options (bpe:vocab_size=512), or a folder with a tokenizer.json.
    """
    from zoo.building.settings import first_line
    from zoo.data.tokenizers.kinds import TOKENIZERS, options_of

    trained = {name: TOKENIZERS.get(name) for name in TOKENIZERS}
    kinds: list[dict[str, Any]] = [
        {"name": name, "summary": first_line(train), "options": options_of(train)} for name, train in trained.items()
    ]
    rows = [(kind["name"], kind["summary"], ", ".join(map(setting_text, kind["options"].items()))) for kind in kinds]
    answer(as_json, kinds, table(("Kind", "What it does", "Options"), rows))


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
        rows = [(one, recipe.task, value_text(recipe.arguments)) for one, recipe in found.items()]
        write(table(("Recipe", "Task", "Training"), rows))
    else:
        sections = [(section, value) for section, value in asdict(found[name]).items() if value]
        write(table(("", ""), [(section, value_text(value)) for section, value in sections]))
