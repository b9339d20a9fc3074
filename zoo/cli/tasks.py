"""`zoo tasks`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from .output import heading, setting_text, table, write, write_json
from .parameters import json_option


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
    trained: list[dict[str, Any]] = [
        {
            "name": name,
            "model_tasks": list(TASKS.get(name).model_tasks),
            "summary": first_line(TASKS.get(name)),
            "options": {option.name: getattr(TASKS.get(name), option.name) for option in fields(TASKS.get(name))},
        }
        for name in TASKS
    ]
    if as_json:
        write_json({"models": heads, "training": trained})
        return
    write(heading("What a model is built for"), table(("", ""), heads.items()))
    rows = [
        (task["name"], ", ".join(task["model_tasks"]), f"{task['summary']} {options(task['options'])}".strip())
        for task in trained
    ]
    write(heading("What it is trained on"), table(("Task", "Model", "Examples, and options with defaults"), rows))


def options(defaults: dict[str, object]) -> str:
    return f"[{', '.join(map(setting_text, defaults.items()))}]" if defaults else ""
