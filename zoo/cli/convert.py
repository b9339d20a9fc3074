"""`zoo convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .output import write_json
from .parameters import PATH, Setting, json_option, once


@click.command("convert")
@click.argument("source", type=PATH, metavar="FILE")
@click.option("-o", "--output", required=True, type=PATH, metavar="DIR", help="The folder to save it in.")
@click.option(
    "--from",
    "origin",
    metavar="FORMAT",
    help="The format, e.g. vanilla, or the model type of transformers, e.g. gemma2 (docs/converters.md lists all of "
    "them); by default found by keys or configuration.",
)
@click.option(
    "--prefix",
    default="",
    metavar="PREFIX",
    help="Convert the keys that begin with this, e.g. transformer., if the file has others.",
)
@click.option("--quirks", metavar="NAME,...", help="The original's defects to keep, by default all; '' for none.")
@click.option("--keep-dead", is_flag=True, help="Keep weights that the original never uses.")
@click.option(
    "--set",
    "settings",
    type=Setting(),
    multiple=True,
    metavar="KEY=VALUE",
    help="A field of the configuration that the file lacks, e.g. num_attention_heads=8; any number of times.",
)
@click.option("--force", is_flag=True, help="Replace the saved model that is in the folder.")
@json_option
def convert(
    source: Path,
    output: Path,
    origin: str | None,
    prefix: str,
    quirks: str | None,
    keep_dead: bool,
    settings: tuple[tuple[str, Any], ...],
    force: bool,
    as_json: bool,
) -> None:
    """Make a model of the zoo from another implementation's weights, and save it.

    FILE is a .safetensors file, or a state_dict that torch.save wrote; or the folder or repository of one of
    transformers' own models, with its tokenizer. Nothing in a file is executed. The folder is written whole
    or not at all.
    """
    from zoo.base.folders import check_output, written_whole
    from zoo.converters import convert as convert_weights
    from zoo.converters.native.files import carry_tokenizer, folder_of
    from zoo.converters.native.reading import is_native

    check_output(output, force=force)
    hints: dict[str, Any] = once(settings)
    if quirks is not None:
        hints["quirks"] = [name.strip() for name in quirks.split(",") if name.strip()]
    if keep_dead:
        hints["keep_dead"] = True
    native = is_native(source, origin) and not source.is_file()
    if native:
        source = folder_of(source)
    model = convert_weights(source, origin, prefix=prefix, **hints)
    with written_whole(output, force=force) as folder:
        model.save_pretrained(folder)
        if native:
            carry_tokenizer(source, folder)
    made = {
        "path": str(output.resolve()),
        "variant": model.config.variant,
        "quirks": model.config.quirks,
        "model_class": type(model).__name__,
        "num_parameters": model.num_parameters(),
        "dtype": str(model.dtype).removeprefix("torch."),
    }
    if as_json:
        write_json(made)
        return
    click.echo(f"{output}: {made['variant']}, {made['model_class']}, {made['num_parameters']:,} parameters")
    click.echo(f"  quirks: {', '.join(model.config.quirks) or 'none'}")
