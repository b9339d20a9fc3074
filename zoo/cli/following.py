"""The next command, printed as the last line on a terminal."""

from __future__ import annotations

import functools
import shlex
from typing import Any

import click
from rich.text import Text

from .output import is_read, write

NEXT = {
    "list": "zoo show NAME",
    "show": "zoo build {name} -o DIR",
    "weights list": "zoo weights show NAME",
    "weights show": "zoo explore {name}",
    "weights make": "zoo weights verify",
    "diff": "zoo compare {a} {b} --seeds 3",
    "params": "zoo plan {name}",
    "summary": "zoo show --code NAME",
    "attention": "zoo explore {model}",
    "settings": "zoo build NAME --set SETTING=VALUE -o DIR",
    "coordinates": "zoo train {name} --parametrization mup -o DIR",
    "tasks": "zoo train NAME --task TASK -o DIR",
    "recipes": "zoo train NAME --recipe RECIPE -o DIR",
    "tokenizers": "zoo train NAME --tokenizer KIND -o DIR",
    "build": "zoo summary {output}",
    "generate": "zoo attention {model} --source TEXT -o DIR",
    "predict": "zoo evaluate {model}",
    "evaluate": "zoo push {model} OWNER/NAME",
    "claims": "zoo bench run BENCHMARK --record",
    "bench list": "zoo bench show NAME",
    "bench show": "zoo bench run {name} VARIANT",
    "bench run": "zoo bench verify {name}",
    "eject": "zoo diff NAME NAME --code",
    "convert": "zoo summary {output}",
    "export": "zoo push {output} OWNER/NAME",
    "push": "zoo pull {repo_id}",
    "pull": "zoo explore {repo_id}",
    "doctor": "zoo plan NAME",
    "data list": "zoo data get NAME",
    "data get": "zoo data prepare NAME",
    "data remove": "zoo data list --prepared",
    "data prepare": "zoo train NAME --data {output}",
}
"""The next command by verb, with what the verb was given. `train`, `compare` and `plan` print their own."""


def followed(command: click.Command, verb: str) -> click.Command:
    """Let a command end with the next one, on a terminal without --json."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            followed(inner, f"{verb} {name}")
    elif verb in NEXT and command.callback is not None and not hasattr(command.callback, "__wrapped__"):
        callback = command.callback

        @functools.wraps(callback)
        def run(*args: Any, **given: Any) -> Any:
            result = callback(*args, **given)
            if not given.get("as_json") and is_read():
                write(Text(f"\nNext: {next_command(verb, given)}", style="dim"))
            return result

        command.callback = run
    return command


def next_command(verb: str, given: dict[str, Any]) -> str:
    """Write the next command."""
    words = {name: name.upper() if value is None else shlex.quote(str(value)) for name, value in given.items()}
    return NEXT[verb].format_map(words)
