"""`zoo data`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .output import table, width, write, write_json
from .parameters import json_option

if TYPE_CHECKING:
    from zoo.registry import Corpus

HEADINGS = ("Name", "Language", "Words", "Bytes", "Licence", "Here", "What it is", "Source")
WIDE = 180
"""From how many columns all of these are shown."""


@click.group("data", invoke_without_command=True)
@json_option
@click.pass_context
def data(ctx: click.Context, as_json: bool) -> None:
    """List corpora by name, and download them.

    The name of a corpus works wherever a verb takes --data: `zoo train gpt2-style --task language-modeling --data
    tinyshakespeare`. Corpora are kept in the folder that the environment variable ZOO_DATA names.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_them, patterns=(), as_json=as_json)


@data.command("list")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@json_option
def list_them(patterns: tuple[str, ...], as_json: bool) -> None:
    """List corpora.

    A PATTERN is a name with wildcards ('babylm-*'); one that begins with '!' excludes what it matches.
    """
    from dataclasses import asdict

    from zoo.data.corpora import data_folder, is_here
    from zoo.registry import CORPORA, list_corpora

    found = [CORPORA.get(name) for name in list_corpora(patterns or "*")]
    if as_json:
        write_json([{**asdict(one), "files": len(one.files), "here": is_here(one)} for one in found])
        return
    rows = [row(one) for one in found]
    columns = width()
    names = HEADINGS if columns is None or columns >= WIDE else HEADINGS[:-2]
    write(table(names, [row[: len(names)] for row in rows], right=("Words", "Bytes")))
    if columns is not None:
        write(f"\nKept in {data_folder()}")


def row(one: Corpus) -> tuple[str, ...]:
    """Cells of a corpus."""
    from zoo.data.corpora import is_here

    here = "streamed" if one.hub else "yes" if is_here(one) else "no"
    words, size = ("" if number is None else f"{number:,}" for number in (one.words, one.bytes))
    return one.name, one.language, words, size, one.license, here, one.summary, one.source


@data.command("get")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Check all files again, and build the corpus again.")
@click.option("--quiet", is_flag=True, help="No progress bars.")
def get(names: tuple[str, ...], force: bool, quiet: bool) -> None:
    """Download corpora, check every file by its digest, and print where they are.

    An interrupted download goes on where it ended.
    """
    from zoo.data.corpora import get as get_corpus
    from zoo.registry import CORPORA

    for name in names:
        CORPORA.get(name)  # refuses unknown names before anything is downloaded
    for name in names:
        click.echo(str(get_corpus(name, force=force, progress=not quiet)))
