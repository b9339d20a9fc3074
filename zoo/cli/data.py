"""`zoo data`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .output import answer, is_narrow, table, width, write, write_json
from .parameters import PATH, OneOf, json_option, refuse_with

if TYPE_CHECKING:
    from zoo.registry import Corpus

HEADINGS = ("Name", "Language", "Words", "Bytes", "Licence", "Here", "What it is", "Source")
WIDE = 180  # From how many columns all of these are shown


@click.group("data", invoke_without_command=True)
@json_option
@click.pass_context
def data(ctx: click.Context, as_json: bool) -> None:
    """List corpora by name, download and remove them, and prepare texts for training.

    The name of a corpus works wherever a verb takes --data: `zoo train gpt2-style --task language-modeling --data
    tinyshakespeare`. Several are mixed by shares of tokens: `--data books=0.7 --data letters=0.3`. Large texts are
    prepared as token shards when they are first trained on. Corpora, and what was prepared of them, are kept in the
    folder that the environment variable ZOO_DATA names; `zoo data list --prepared` lists the latter with their sizes.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_them, patterns=(), prepared=False, as_json=as_json)


@data.command("list")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option("--prepared", is_flag=True, help="List prepared data and their size on the disk instead.")
@json_option
def list_them(patterns: tuple[str, ...], prepared: bool, as_json: bool) -> None:
    """List corpora.

    A PATTERN is a name with wildcards ('babylm-*'); one that begins with '!' excludes what it matches.
    """
    from zoo.data.corpora.keeping import kept_prepared

    there = kept_prepared()
    if prepared:
        refuse_with("prepared", "as_json")
        shown = [
            (one.name, "" if one.tokens is None else f"{one.tokens:,}", f"{one.bytes:,}", one.source) for one in there
        ]
        kept = table(("Key", "Tokens", "Bytes", "Source"), shown, right=("Tokens", "Bytes"))
        answer(as_json, [{**asdict(one), "place": str(one.place)} for one in there], kept)
        return

    from zoo.data.corpora import data_folder, is_here
    from zoo.registry import CORPORA, list_corpora

    found = [CORPORA.get(name) for name in list_corpora(patterns or "*")]
    if as_json:
        write_json([{**asdict(one), "files": len(one.files), "here": is_here(one)} for one in found])
        return
    rows = [row(one) for one in found]
    names = HEADINGS[:-2] if is_narrow(WIDE) else HEADINGS
    write(table(names, [row[: len(names)] for row in rows], right=("Words", "Bytes")))
    if width() is not None:
        write(f"\nKept in {data_folder()}")
        if there:
            size = sum(one.bytes for one in there)
            write(f"Prepared there: {len(there)} folders, {size:,} bytes (zoo data list --prepared)")


def row(one: Corpus) -> tuple[str, ...]:
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


@data.command("remove")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--prepared", is_flag=True, help="Remove all that was prepared by itself.")
def remove(names: tuple[str, ...], prepared: bool) -> None:
    """Remove corpora and prepared data from the folder of all corpora; they are made again when they are needed.

    NAME is that of a corpus, or a key of `zoo data list --prepared`.
    """
    from zoo.base.errors import ConfigError
    from zoo.data.corpora.keeping import remove as remove_kept

    if not names and not prepared:
        raise ConfigError("name corpora or keys to remove, or give --prepared for all that was prepared")
    for one in remove_kept(names, prepared=prepared):
        click.echo(f"{one.place} removed ({one.bytes:,} bytes)")


@data.command("prepare")
@click.argument("source", metavar="SOURCE")
@click.option(
    "--tokenizer",
    required=True,
    metavar="DIR|KIND[:OPTION=VALUE]",
    help="A folder with a tokenizer.json, or a kind to train (zoo tokenizers): bpe:vocab_size=8000.",
)
@click.option("--output", "-o", required=True, type=PATH, metavar="DIR", help="The folder to write.")
@click.option(
    "--heldout", metavar="PATH", help="Texts to evaluate on; by default SOURCE's held-out split, or up to 5 % of it."
)
@click.option(
    "--column", metavar="NAME", help="Column or key of the text; by default text, content, sentence or document."
)
@click.option(
    "--task",
    default="language-modeling",
    show_default=True,
    help="The task that a tokenizer of this KIND is trained for (masked-language-modeling adds a mask).",
)
@click.option(
    "--on-error",
    default="stop",
    show_default=True,
    type=OneOf("on-error", ("stop", "skip")),
    help="At a line that is not valid: stop, or skip and count it.",
)
@click.option(
    "--near-duplicates",
    type=float,
    metavar="SIMILARITY",
    help="Leave out documents that share this part of their runs of five words with a held-out one, estimated by "
    "MinHash, e.g. 0.8.",
)
@click.option("--jobs", "-j", type=click.IntRange(1), help="Processes; by default one a core.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
@json_option
def prepare(
    source: str,
    tokenizer: str,
    output: Path,
    heldout: str | None,
    column: str | None,
    task: str,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Encode texts once into token shards that are trained on by memory map: `zoo train NAME --data DIR`.

    SOURCE is a .txt, .jsonl or .parquet file (.gz and .zst too), a folder of them, a corpus (zoo data), or
    hf:ORG/NAME, which is streamed. A preparation that was interrupted goes on when the same is given again. A
    tokenizer is trained on 64 MiB of text, taken evenly from all of SOURCE. Verbs that train prepare large sources by
    themselves; this one is for another place or other options.
    """
    from zoo.data.corpora.preparing import prepare as prepare_source
    from zoo.data.tasks.prepared import tokenizers_for

    tokenizers = tokenizers_for(source, tokenizer, task, heldout=heldout, column=column)
    options |= {"heldout": heldout, "column": column, "progress": not quiet}
    made = prepare_source(source, tokenizers, output, **options)
    skipped, near = (sum(getattr(shard, name) for shard in made.shards) for name in ("skipped", "near"))
    nearly = "" if options["near_duplicates"] is None else f", {near:,} near duplicates of them"
    texts = f"{made.tokens:,} tokens of {made.documents:,} documents ({made.bytes:,} bytes)"
    left_out = f"{skipped:,} lines skipped, {made.duplicates:,} held-out documents{nearly} left out"
    answer(as_json, asdict(made), f"{output}: {texts} in {len(made.shards):,} shards; {left_out}")
