"""Tasks by their names, which may carry options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.registry import split_options

from .task import TASKS, DataTask


def find_task(name: str, options: Mapping[str, Any] | None = None) -> DataTask:
    """Look a task up.

    Args:
        name: Its name, possibly with options: "translation", "language-modeling:block_size=64".
        options: Other options; those in the name take precedence.

    Raises:
        UnknownTaskError: When there is no such task.
        UnknownNameError: When it has no such option.
        ConfigError: When an option's value is not valid.
    """
    bare, said = split_name(name)
    return TASKS.get(bare).configured({**(options or {}), **said})


def split_name(name: str) -> tuple[str, dict[str, Any]]:
    """Separate a task's name from the options behind it.

    Args:
        name: For instance "language-modeling:block_size=64".

    Returns:
        The name, and the options.

    Raises:
        NameSyntaxError: When it cannot be read.
    """
    return split_options(name, "task")
