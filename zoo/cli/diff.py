"""`zoo diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import heading, indented, table, value_text, write, write_json, write_picture
from .parameters import VariantName, json_option, svg_option, task_option

if TYPE_CHECKING:
    from zoo.analysis.diff import Difference

HEADINGS = {
    "setting": "Settings",
    "quirk": "Quirks",
    "code": "Code that settings do not tell",
    "size": "Size",
}


@click.command("diff")
@click.argument("a", type=VariantName(), metavar="A")
@click.argument("b", type=VariantName(), metavar="B")
@task_option("What both are for; by default the first task of A that B can do, too.")
@svg_option("Draw both side by side into this SVG file, with what differs marked, instead of printing it.")
@json_option
def diff(a: str, b: str, task: str | None, svg: Path | None, as_json: bool) -> None:
    """Show in what two variants differ, and nothing else.

    A and B may carry settings: `zoo diff vanilla vanilla+faithful`, `zoo diff pre-norm pre-norm:position=rotary`.
    """
    import dataclasses

    from zoo.analysis.diff import diff as find_differences

    if svg is not None:
        from zoo.analysis.diff import tasks_of
        from zoo.analysis.drawing import draw, to_svg_beside

        tasks = tasks_of(a, b, task)
        write_picture(svg, to_svg_beside(draw(a, tasks[0]), draw(b, tasks[1])), as_json=as_json)
        return
    differences = find_differences(a, b, task)
    if as_json:
        write_json({"a": a, "b": b, "differences": [dataclasses.asdict(difference) for difference in differences]})
        return
    if not differences:
        click.echo(f"{a} and {b} do not differ.")
    for kind, title in HEADINGS.items():
        rows = [(found.axis, *values(found)) for found in differences if found.kind == kind]
        if rows:
            write(heading(title), indented(table(("", a, b), rows)))


def values(difference: Difference) -> tuple[str, str]:
    """Write both sides of a difference."""
    if difference.kind == "quirk":
        return "on" if difference.a else "off", "on" if difference.b else "off"
    return value_text(difference.a), value_text(difference.b)
