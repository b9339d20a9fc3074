"""How verbs print: tables and text that fit a terminal, plain lines when piped, JSON."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from zoo.base.printed import printable
from zoo.registry import Task
from zoo.registry.plugins import BUILT_IN_DISTRIBUTION

UNLIMITED = 100_000  # The width of what is piped: nothing is cut or wrapped there

VERBS: dict[str, str] = {
    Task.CAUSAL_LM: "generate",
    Task.SEQ2SEQ_LM: "generate",
    Task.SEQUENCE_CLASSIFICATION: "predict",
    Task.TOKEN_CLASSIFICATION: "predict",
}
"""Verb that runs a trained model on the user's texts, by task."""

ASCII = str.maketrans("│├╮╯╰╭┴┬─┌└◂◄×→", "|+.''.++-.'<<x>")  # ASCII replacements of the characters of drawings


def console() -> Console:
    terminal = Console(highlight=False, soft_wrap=False)
    return terminal if terminal.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=UNLIMITED)


def is_read() -> bool:
    return Console().is_terminal


def width() -> int | None:
    columns = console().width
    return None if columns == UNLIMITED else columns


def is_narrow(columns: int) -> bool:
    """Whether stdout is a terminal with fewer columns."""
    return console().width < columns


def hide_progress_bars() -> None:
    """Hide progress bars of transformers and of the Hub's client."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def write(*parts: RenderableType) -> None:
    """Print text or tables, without blanks at the ends of lines."""
    screen = console()
    with screen.capture() as capture:
        for part in parts:
            screen.print(part)
    text = "\n".join(line.rstrip() for line in capture.get().split("\n"))
    click.echo(writable(text, sys.stdout.encoding or "utf-8"), nl=False, color=True)


def writable(text: str, encoding: str) -> str:
    """Replace what an encoding lacks."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(ASCII).encode(encoding, errors="replace").decode(encoding)
    return text


def for_stdout(text: str) -> str:
    """Escape what a terminal would obey, where stdout is one; a pipe or a file gets the text as it is."""
    return printable(text, keep="\n\t") if sys.stdout.isatty() else text


def write_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def answer(as_json: bool, data: Any, *parts: RenderableType) -> None:
    """Print data as JSON if that is asked for, else text or tables."""
    if as_json:
        write_json(data)
    else:
        write(*parts)


def echo(as_json: bool, data: Any, *lines: str) -> None:
    """Print data as JSON if that is asked for, else lines, which are not broken at the edge of the terminal."""
    if as_json:
        write_json(data)
    else:
        click.echo("\n".join(lines))


def write_picture(file: Path, text: str, *, as_json: bool) -> None:
    from zoo.base.files import write_file

    write_file(file, text)
    echo(as_json, {"svg": str(file)}, f"Wrote {file}")


def table(columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, right: Iterable[str] = ()) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(columns))
    numbers = set(right)
    for place, column in enumerate(columns):
        layout: dict[str, Any] = {"style": "" if place else "cyan", "no_wrap": place == 0 or column in numbers}
        made.add_column(column, justify="right" if column in numbers else "left", overflow="fold", **layout)
    for row in rows:
        made.add_row(*(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row))
    return made


def heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2))


def origin_text(distribution: str | None, version: str | None) -> str:
    if distribution == BUILT_IN_DISTRIBUTION:
        return "built in"
    return " ".join(filter(None, (distribution, version))) or "a script"


def value_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(map(setting_text, value.items()))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(value_text, value))
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 1_000_000 else str(value)


def setting_text(setting: tuple[str, Any]) -> str:
    key, value = setting
    text = value_text(value)
    return f"{key}=({text})" if isinstance(value, (dict, list, tuple)) else f"{key}={text}"
