"""`zoo attention`."""

from __future__ import annotations

from pathlib import Path

import click

from .output import hide_progress_bars, write_json
from .parameters import FOLDER, device_option, json_option


@click.command("attention")
@click.argument("model", metavar="MODEL")
@click.option("--source", metavar="TEXT", required=True, help="Input of the model.")
@click.option(
    "--target",
    metavar="TEXT",
    help="Target of an encoder-decoder, by default its own greedy output; or what follows the "
    "source of a language model.",
)
@click.option("-o", "--output", type=FOLDER, metavar="OUT", required=True, help="A folder.")
@click.option("--force", is_flag=True, help="Replace pictures of an earlier run in OUT.")
@device_option
@json_option
def attention(
    model: str, source: str, target: str | None, output: Path, force: bool, device: str | None, as_json: bool
) -> None:
    """Draw what every layer and head of a model attends to.

    MODEL is a checkpoint's folder with its tokenizer, the name of weights (zoo weights), or a repository on the Hub.
    OUT gets a picture of each kind of attention (encoder.png, decoder.png, cross.png), layers row by row and heads
    column by column, and attention.html, one page without anything from elsewhere on which every head can be looked at
    closely.
    """
    from zoo.inside import attention as attend
    from zoo.inside.heatmaps import save_attention

    hide_progress_bars()
    maps = attend(model, source, target, device=device)
    files = save_attention(maps, output, force=force)
    if as_json:
        weights = {
            one.kind: {
                "queries": one.queries,
                "keys": one.keys,
                "layers": one.layers,
                "weights": one.weights.tolist(),
            }
            for one in maps.maps
        }
        result = {"model": maps.name, "source": maps.source, "output": maps.output, "files": files}
        write_json({**result, "attention": weights})
        return
    if maps.output:
        click.echo(maps.output)
    for file in files:
        click.echo(f"Wrote {file}")
