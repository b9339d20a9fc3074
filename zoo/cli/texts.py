"""Options of verbs by which a model reads texts, and where the texts come from."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from zoo.base.errors import ZooError

from .parameters import EXISTING_FILE, device_option, engine_option, json_option, together

texts_options = together(
    click.argument("model", metavar="MODEL"),
    click.argument("texts", nargs=-1, metavar="[TEXT...]"),
    click.option("--file", "-f", type=EXISTING_FILE, help="A file with a text a line."),
    click.option("--batch-size", default=32, show_default=True, type=click.IntRange(1), help="Texts at a time."),
    device_option,
    engine_option,
    json_option,
)


def read_lines(texts: Sequence[str], file: Path | None) -> Sequence[str]:
    """The texts that were given, or the lines of a file, or else of standard input."""
    if texts and file is not None:
        raise click.UsageError("give TEXT or --file, not both")
    if texts:
        return texts
    if file is None and sys.stdin.isatty():
        raise click.UsageError("no text: give TEXT, --file, or something on standard input")
    read = file.read_bytes() if file is not None else sys.stdin.buffer.read()
    try:
        # With universal newlines; str.splitlines also breaks at form feeds, as no editor does.
        return [line.removesuffix("\n") for line in io.StringIO(read.decode("utf-8-sig"), newline=None)]
    except UnicodeDecodeError as error:
        line = read[: error.start].count(b"\n") + 1
        raise ZooError(f"{file or 'standard input'}, line {line}: not valid UTF-8") from error
