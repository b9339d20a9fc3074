"""Hints of every command: examples at the end of its help, and the next command after its output on a terminal."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import Any

import click
import yaml  # type: ignore[import-untyped]
from rich.text import Text

from .output import is_read, write

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
HINTS: dict[str, dict[str, Any]] = yaml.load(
    Path(__file__).with_name("hints.yaml").read_text(encoding="utf-8"), Loader=LOADER
)
"""Examples and the next command of every verb, with its group's before it."""

NEXT: dict[str, str] = {verb: hints["next"] for verb, hints in HINTS.items() if "next" in hints}
"""The next command by verb, with what the verb was given."""


def with_hints(command: click.Command, verb: str) -> None:
    """Add examples to a command's help, and the next command to its output on a terminal without --json."""
    if verb in HINTS:
        command.epilog = "\b\n" + "\n".join(("Examples:", *(f"  {one}" for one in HINTS[verb]["examples"])))
    callback = command.callback
    if verb not in NEXT or callback is None or hasattr(callback, "__wrapped__"):
        return

    @functools.wraps(callback)
    def run(*args: Any, **given: Any) -> Any:
        result = callback(*args, **given)
        if not given.get("as_json") and is_read():
            write(Text(f"\nNext: {next_command(verb, given)}", style="dim"))
        return result

    command.callback = run


def next_command(verb: str, given: dict[str, Any]) -> str:
    words = {name: name.upper() if value is None else shlex.quote(str(value)) for name, value in given.items()}
    return NEXT[verb].format_map(words)
