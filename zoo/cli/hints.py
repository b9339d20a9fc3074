"""Hints of every command: examples at the end of its help, and the next command after its output on a terminal."""

import functools
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.text import Text

from .output import is_read, write

TABLE = Path(__file__).with_name("hints.tsv")


class Hints(NamedTuple):
    """Hints of a verb."""

    examples: tuple[str, str]  # Commands at the end of its help
    following: str  # The next command, with {name} for an argument or option that was given; "" if the verb prints one


HINTS = {
    verb: Hints((one, other), following)
    for verb, one, other, following in (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()[1:])
}
"""Hints by verb, with its group's name before it."""


def with_hints(command: click.Command, verb: str) -> None:
    """Add examples to a command's help, and the next command to its output on a terminal without --json."""
    hints, callback = HINTS.get(verb), command.callback
    if hints is not None:
        command.epilog = "\b\n" + "\n".join(("Examples:", *(f"  {one}" for one in hints.examples)))
    if hints is None or not hints.following or callback is None or hasattr(callback, "__wrapped__"):
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
    return HINTS[verb].following.format_map(words)
