"""`zoo show`."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType
from rich.text import Text

from zoo.building.weights import is_saved
from zoo.registry import describe, find_weights, is_weights_name, list_weights

from .output import answer, heading, indented, origin_text, setting_text, table, width, write, write_json, write_picture
from .parameters import VARIANT_OR_SAVED, given_options, json_option, refuse_with, svg_option, task_option
from .weights import show_weights

if TYPE_CHECKING:
    from zoo.analysis.drawing import Drawing
    from zoo.registry import Card


@click.command("show")
@click.argument("name", type=VARIANT_OR_SAVED, metavar="NAME|DIR")
@task_option("What to draw the model for; by default the variant's first task.")
@svg_option("Draw it as a block diagram into this SVG file instead of printing it.")
@click.option("--code", "wants_code", is_flag=True, help="Print the source that a forward passes, in reading order.")
@click.option(
    "--drawing/--no-drawing", "draws", default=True, help="Leave the drawing out, for which torch is imported."
)
@click.option(
    "--signals",
    is_flag=True,
    help="Print how large the residual stream of a new model is, and what every sublayer adds to it.",
)
@json_option
def show(
    name: str, task: str | None, svg: Path | None, wants_code: bool, draws: bool, signals: bool, as_json: bool
) -> None:
    """Show what a variant is, with a drawing of its block.

    In the drawing the residual stream runs down the left side; branches leave it to the right and join it again. Where
    NAME switches quirks on ('vanilla+faithful'), the drawing shows what each one changes. NAME may be that of weights,
    DIR a checkpoint's folder.
    """
    for one in ("svg", "wants_code", "signals"):
        refuse_with(one, "name", "task", "draws", "as_json")
    if is_weights_name(name):
        if others := [typed for one, typed in given_options().items() if one not in ("name", "draws", "as_json")]:
            raise click.UsageError(f"{name} is a name of weights, which take no {others[0]}; give that of a variant")
        show_weights(find_weights(name), as_json=as_json)
        return
    if is_saved(name) and (task or wants_code or signals):
        given = given_options()
        flag = next(given[one] for one in ("task", "wants_code", "signals") if one in given)
        raise click.UsageError(f"{flag} is of variants, and {name} is a checkpoint's folder")
    if wants_code:
        from zoo.analysis.source_listing import show_code

        listing = show_code(name, task)
        answer(as_json, listing.to_dict(), Text(str(listing), no_wrap=True, overflow="ignore"))
        return
    if signals:
        show_signals(name, task, as_json=as_json)
        return
    if is_saved(name):
        from zoo.inside.show import show as show_model

        portrait = show_model(name)
        card, drawn = portrait.card, lambda: portrait.drawing
    else:
        card, drawn = describe(name), partial(drawing_of, name, task)
    if svg is not None:
        from zoo.analysis.drawing import to_svg

        write_picture(svg, to_svg(drawn()), as_json=as_json)
        return
    if as_json:
        trained = list_weights(f"{card.name}.*")
        from zoo.comparison.benchmarks.claims import claims_about
        from zoo.comparison.benchmarks.judging import as_data, standings_of

        about = {
            "weights": trained,
            "results": [as_data(*found) for found in standings_of(card.name)],
            "claims": {finding.claim.name: finding.verdict for finding in claims_about(card.name)},
        }
        write_json({**card.to_dict(), **about, "drawing": drawn().to_dict()})
        return
    write(*facts(card))
    if card.quirks:
        write(heading("Quirks of the original, off unless asked for"), indented(table(("", ""), card.quirks.items())))
        write(
            Text(f"\n  {card.name}+faithful switches all on, {card.name}+{next(iter(card.quirks))} one.", style="dim")
        )
    from zoo.building.weights.tables import scores_text

    if trained := list_weights(f"{card.name}.*"):
        rows = [(one.name, scores_text(one), one.summary) for one in map(find_weights, trained)]
        write(heading("Weights"), indented(table(("", "", ""), rows)))
    if results := result_rows(card.name):
        write(heading("Recorded, with the baseline of each benchmark (zoo bench show NAME)"))
        write(indented(table(("", "", "", ""), results)))
    if not draws:
        return
    drawing = drawn()
    write(heading(f"One block, for {drawing.task}"), indented(picture(drawing)))
    write(Text(f"\n  {card.num_parameters:,} parameters for {card.tasks[0]}"))
    if card.limits:
        write(heading("Limits"), *(indented(Text(limit)) for limit in card.limits))
    if card.deviations:
        write(heading("Deviations from the paper"), *(indented(Text(one)) for one in card.deviations))


def drawing_of(name: str, task: str | None) -> Drawing:
    from zoo.analysis.drawing import draw

    return draw(name, task)


def show_signals(name: str, task: str | None, *, as_json: bool) -> None:
    from zoo.analysis.measuring.signals import measure_signals

    found = measure_signals(name, task)
    rows = [(one.path, f"{one.stream:.3g}", f"{one.branch:.3g}", f"{one.share:.3g}") for one in found]
    columns = ("Connection", "Stream", "Branch", "Branch / stream")
    data = [{**asdict(one), "share": one.share} for one in found]
    answer(as_json, data, table(columns, rows, right=columns[1:]))


def result_rows(name: str) -> list[tuple[str, str, str, str]]:
    """Lay out what was recorded of a variant: benchmark, score, difference and verdict."""
    from zoo.comparison.benchmarks.claims.page import tested
    from zoo.comparison.benchmarks.judging import standings_of
    from zoo.comparison.benchmarks.page import spread, title

    rows = []
    for verdicts, standing in standings_of(name):
        where = ", ".join(filter(None, (verdicts.benchmark.name, verdicts.condition)))
        score = f"{title(verdicts.score)} {spread(standing.samples.get(verdicts.score))}"
        difference = standing.difference
        rows.append(
            (where, score, "" if difference is None else tested(difference, difference.adjusted), standing.verdict)
        )
    return rows


def facts(card: Card) -> list[RenderableType]:
    """Lay out what a card holds about a variant as a whole."""
    from zoo.comparison.benchmarks.claims import claims_about
    from zoo.comparison.benchmarks.claims.page import tally

    findings = claims_about(card.name)
    rows: dict[str, str | Text | None] = {
        "tasks": f"{', '.join(card.tasks)} (the first is the default)",
        "paper": card.paper,
        "source": card.source,
        "tags": ", ".join(card.tags),
        "aliases": ", ".join(card.aliases),
        "deprecated": card.deprecated,
        "settings": ", ".join(map(setting_text, card.settings.items())),
        "presets": Text(presets(card)),
        "from": origin_text(card.distribution, card.version),
        "code": card.file and f"{card.file}:{card.line}",
        "claims": f"{tally(findings)} (zoo claims {card.name})" if findings else "",
    }
    title = Text.assemble((card.spec, "bold cyan"), "  ", card.summary)
    text = [title, *([Text(f"\n{card.description}")] if card.description else []), Text()]
    return [*text, table(("", ""), [(key, value) for key, value in rows.items() if value])]


def presets(card: Card) -> str:
    from zoo.registry import SIZES

    lines = []
    usual = ", ".join(preset for preset, values in card.presets.items() if values == SIZES.get(preset))
    for preset, values in card.presets.items():
        if values != SIZES.get(preset):
            lines.append(f"{preset} ({', '.join(map(setting_text, values.items()))})")
    return "\n".join(filter(None, (usual, *lines)))


def picture(drawing: Drawing) -> Text:
    from zoo.analysis.drawing import to_text
    from zoo.analysis.drawing.text import QUIRK_SIGN

    columns = width()
    text = Text(to_text(drawing, columns and min(columns - 2, 118)), no_wrap=True, overflow="ignore")
    text.highlight_regex(rf"{QUIRK_SIGN}.*", "yellow")
    text.highlight_regex(r"(?m)^(encoder|decoder|head|rules|the variant's own parts)$", "bold")
    return text
