"""`zoo explore` and `zoo attention`."""

import webbrowser
from contextlib import suppress
from pathlib import Path

import click

from .output import hide_progress_bars, write_json
from .parameters import EXISTING_FOLDER, FOLDER, device_option, json_option, refuse_with


@click.command("explore")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--text", metavar="TEXT", help="Initial text of the box.")
@click.option(
    "--reports",
    type=EXISTING_FOLDER,
    metavar="DIR",
    help="A comparison's folder, or one with several, to show the reports of.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="The port; by default the first free one from 7860 on.")
@click.option("--open/--no-open", "opens", default=True, show_default=True, help="Open the page in the browser.")
@click.option("--static", is_flag=True, help="Write a page that runs the models in the browser, without a server.")
@click.option("-o", "--output", type=FOLDER, metavar="DIR", help="Folder of the static page.")
@click.option("--force", is_flag=True, help="Replace the folder.")
def explore(
    models: tuple[str, ...],
    text: str | None,
    reports: Path | None,
    port: int | None,
    opens: bool,
    static: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Look at models on a page: outputs, attention, and early predictions.

    MODEL is the name of weights (zoo weights), a checkpoint's folder with its tokenizer, or a repository on the Hub; by
    default everything that ships with the zoo can be chosen. The page has their drawings with the shapes of what is
    typed, the quirks of the originals to switch on and off, and any two variants side by side. It is served to this
    machine only, from this machine only, at an address with a token: keep that to yourself.

    With --static it is written into a folder that any file server can serve, and the models run in the browser.
    """
    refuse_with("static", "models", "output", "force")
    if static:
        write_static(models, output, force=force)
        return
    if output is not None or force:
        raise click.UsageError("--output and --force are options of --static")
    from zoo.inside.explorer import build_page, explored, find_reports, launch, shipped_models
    from zoo.inside.explorer.page import FIRST_TEXT, gradio

    gradio()
    hide_progress_bars()
    for name in models:
        explored(name)
    page = build_page(
        models or shipped_models(), text=text or FIRST_TEXT, reports=find_reports(reports) if reports else ()
    )
    server = launch(page, port)
    click.echo(f"Explore at {server.address} until Ctrl-C")
    if opens:
        webbrowser.open(server.address)
    with suppress(KeyboardInterrupt):
        server.run()


def write_static(models: tuple[str, ...], output: Path | None, *, force: bool) -> None:
    """Write the page that needs no server, and print its size."""
    from zoo.inside.browser import write_site

    if output is None:
        raise click.UsageError("--static writes a folder: name it with -o DIR")
    hide_progress_bars()
    sizes = write_site(output, models, force=force)
    total = sum(sizes.values()) / 1e6
    click.echo(f"{output} ({len(sizes)} files, {total:.1f} MB); `python -m http.server -d {output}` serves it")


@click.command("attention")
@click.argument("model", metavar="MODEL")
@click.option("--source", metavar="TEXT", required=True, help="Input of the model.")
@click.option(
    "--target",
    metavar="TEXT",
    help="Target of an encoder-decoder, by default its own greedy output; or what follows the source of a language "
    "model.",
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
        weights = {}
        for one in maps.maps:
            places = {"queries": one.queries, "keys": one.keys, "layers": one.layers}
            weights[one.kind] = {**places, "weights": one.weights.tolist()}
        result = {"model": maps.name, "source": maps.source, "output": maps.output, "files": files}
        write_json({**result, "attention": weights})
        return
    if maps.output:
        click.echo(maps.output)
    for file in files:
        click.echo(f"Wrote {file}")
