"""`zoo export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .output import answer, table, write_json
from .parameters import PATH, json_option, refuse_with

if TYPE_CHECKING:
    from zoo.converters import TargetPlan


@click.command("export")
@click.argument("model", metavar="[DIR|NAME|REPO|VARIANT]", required=False)
@click.option("-o", "--output", type=PATH, metavar="OUT", help="The folder to write.")
@click.option(
    "--as",
    "target",
    metavar="TARGET",
    help="A model type of transformers (marian, bert, ...), bundle, onnx, openvino, ... (--plan lists all).",
)
@click.option(
    "--dtype",
    metavar="DTYPE",
    help="How weights are stored, where the target has a choice: float32, int8, bfloat16, ...",
)
@click.option("--page", is_flag=True, help="Add a web page that runs the model, offline (transformers.js).")
@click.option("--plan", is_flag=True, help="Only list all targets: which are exact, and why others are not.")
@click.option(
    "--matrix", is_flag=True, help="List where every VARIANT, or one or '*-norm', can go, planned for small models."
)
@click.option("--markdown", is_flag=True, help="Print the matrix as the page of the documentation.")
@click.option("--force", is_flag=True, help="Replace the saved model that is in the folder.")
@json_option
def export(
    model: str | None, output: Path | None, plan: bool, matrix: bool, markdown: bool, as_json: bool, **options: Any
) -> None:
    """Write a saved model in a form that needs no zoo.

    The first class of transformers that expresses the model exactly is taken, or the one that --as names. The export is
    loaded where the zoo cannot be imported and compared with the model; if it differs, nothing is kept.
    """
    refuse_with("matrix", "model", "markdown", "as_json")
    refuse_with("markdown", "model", "matrix")
    refuse_with("plan", "model", "as_json")
    if matrix or markdown:
        show_matrix(model, markdown, as_json)
        return
    if model is None:
        raise click.UsageError("Missing argument 'DIR', the folder of a saved model.")
    if plan:
        show_plan(model, as_json)
        return
    if output is None:
        raise click.UsageError("Missing option '-o', the folder to write (or --plan).")
    from zoo.converters.exporting import export as export_model
    from zoo.converters.exporting import find_target

    report = export_model(model, output, **options)
    if as_json:
        write_json(report.to_dict())
        return
    code = [name for name in report.files if name.endswith(".py")]
    named = [name for name in report.files if name not in code] + ([f"{len(code)} files of code"] if code else [])
    click.echo(f"{output}: {report.class_name} ({', '.join(named)})")
    for name, summary in report.transforms.items():
        click.echo(f"  {name}: {summary}")
    found = report.difference
    if found is not None:
        tokens = f", same tokens greedily{' and with beams' * bool(found.beams)}" if found.greedy else ""
        where = find_target(report.target).run_in("the zoo")
        click.echo(f"  {where}; differs by at most {found.float32:.1e}{tokens}")
    if found is not None and found.perplexities is not None:
        cost = found.perplexities
        click.echo(f"  perplexity on {cost.tokens} own tokens: {cost.original:.4g}, rounded {cost.rounded:.4g}")
    for note in report.notes:
        click.echo(f"  note: {note}")


def show_plan(model: str, as_json: bool) -> None:
    from zoo.building.dispatch import load
    from zoo.converters import TARGETS, plan_engines, plan_export

    loaded = load(model)
    plans = sorted([*plan_export(loaded), *plan_engines(loaded)], key=lambda plan: not plan.exact)
    tried = {name for name in TARGETS if TARGETS.get(name).by_trial}
    rows = [
        (plan.target, "exact" if plan.target not in tried else "by trial", how(plan))
        if plan.exact
        else (plan.target, "no", plan.why_not)
        for plan in plans
    ]
    answer(as_json, [plan.to_dict() for plan in plans], table(("Target", "", "By, or why not"), rows))


def how(plan: TargetPlan) -> str:
    if plan.route is None:
        return " ".join(plan.notes)
    return ", ".join(plan.transforms) or "renaming"


def show_matrix(pattern: str | None, markdown: bool, as_json: bool) -> None:
    from zoo.converters.matrix import export_matrix, other_targets, to_page
    from zoo.registry import VARIANTS

    found = list(export_matrix(pattern or "*"))
    if not found:
        assert pattern is not None
        VARIANTS.get(pattern)
    if markdown:
        click.echo(to_page(found), nl=False)
        return
    targets = other_targets()
    rows = [
        (
            row.variant,
            row.task,
            row.target or "bundle only",
            (", ".join(row.transforms) or "renaming") if row.target else row.reason,
            *map(row.cell, targets),
        )
        for row in found
    ]
    headings = ("Variant", "Task", "Target", "By, or why not", *targets.values())
    answer(as_json, [row.to_dict() for row in found], table(headings, rows))
