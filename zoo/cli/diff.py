"""`zoo diff` and `zoo eject`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.syntax import Syntax
from rich.text import Text

from .output import for_stdout, heading, indented, is_read, table, value_text, write, write_json, write_picture
from .parameters import FILE, VARIANT_OR_SAVED, json_option, svg_option, task_option

if TYPE_CHECKING:
    from zoo.analysis.diff import Difference

HEADINGS = {"setting": "Settings", "quirk": "Quirks", "code": "Code that settings do not tell", "size": "Size"}


@click.command("diff")
@click.argument("a", type=VARIANT_OR_SAVED, metavar="A")
@click.argument("b", type=VARIANT_OR_SAVED, metavar="B")
@task_option("What both are for; by default the first task of A that B can do, too.")
@svg_option("Draw both side by side into this SVG file, with what differs marked, instead of printing it.")
@click.option("--code", "wants_code", is_flag=True, help="Compare them line by line, as the files of zoo eject.")
@json_option
def diff(a: str, b: str, task: str | None, svg: Path | None, wants_code: bool, as_json: bool) -> None:
    """Show in what two variants differ, and nothing else.

    A and B may carry settings: `zoo diff vanilla vanilla+faithful`, `zoo diff pre-norm pre-norm:position=rotary`; they
    may be checkpoints' folders or names of weights.
    """
    if wants_code:
        if svg is not None:
            raise click.UsageError("give --code or --svg, not both.")
        show_code_difference(a, b, task, as_json=as_json)
        return
    from zoo.analysis.diff import diff as find_differences

    if svg is not None:
        from zoo.analysis.diff import resolve_both
        from zoo.analysis.drawing import draw, to_svg_beside

        drawings = [draw(*pair) for pair in zip(*resolve_both(a, b, task), strict=True)]
        write_picture(svg, to_svg_beside(*drawings), as_json=as_json)
        return
    differences = find_differences(a, b, task)
    if as_json:
        write_json({"a": a, "b": b, "differences": [asdict(difference) for difference in differences]})
        return
    if not differences:
        click.echo(f"{a} and {b} do not differ.")
    for kind, title in HEADINGS.items():
        rows = [(found.axis, *values(found)) for found in differences if found.kind == kind]
        if rows:
            write(heading(title), indented(table(("", a, b), rows)))


def show_code_difference(a: str, b: str, task: str | None, *, as_json: bool) -> None:
    from zoo.analysis.eject import code_difference

    difference = code_difference(a, b, task)
    if as_json:
        write_json(asdict(difference))
    elif not difference.text:
        click.echo(f"{a} and {b} do not differ.")
    else:
        write(Syntax(difference.text, "diff", background_color="default") if is_read() else Text(difference.text))


def values(difference: Difference) -> tuple[str, str]:
    if difference.kind == "quirk":
        return "on" if difference.a else "off", "on" if difference.b else "off"
    return value_text(difference.a), value_text(difference.b)


@click.command("eject")
@click.argument("model", metavar="NAME|DIR|REPO")
@click.option("-o", "--output", type=FILE, metavar="FILE", help="The file to write.")
@task_option("What the model is for; by default the variant's first task, or the saved head's.")
@click.option("--force", is_flag=True, help="Replace the file.")
@json_option
def eject(model: str, output: Path | None, task: str | None, force: bool, as_json: bool) -> None:
    """Write a model as one readable file of PyTorch.

    The file imports neither the zoo nor transformers, and has only what this model uses. It is run without the zoo and
    compared with the model before it is written: outputs, gradients and generated tokens. Without -o it is printed.
    """
    if force and output is None:
        raise click.UsageError("--force replaces the file that -o names: give it, too")
    from zoo.analysis.eject import eject as write_model

    ejected = write_model(model, output, task=task, force=force)
    if as_json:
        write_json({"file": output, "task": ejected.task, "differences": ejected.differences, "text": ejected.text})
    elif output is None:
        click.echo(for_stdout(ejected.text), nl=False)
    else:
        exact = ", ".join(f"{value:.0e} in {dtype}" for dtype, value in ejected.differences.items())
        lines = len(ejected.text.splitlines())
        click.echo(f"Wrote {output}: {lines} lines; outputs differ from the model's by at most {exact}.")
