"""`zoo export` and `zoo convert`."""

from pathlib import Path
from typing import Any

import click

from .output import answer, echo, table, write_json
from .parameters import PATH, Setting, json_option, once, refuse_with


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
    rows = []
    for plan in plans:
        how = " ".join(plan.notes) if plan.route is None else ", ".join(plan.transforms) or "renaming"
        verdict = ("by trial" if plan.target in tried else "exact", how) if plan.exact else ("no", plan.why_not)
        rows.append((plan.target, *verdict))
    answer(as_json, [plan.to_dict() for plan in plans], table(("Target", "", "By, or why not"), rows))


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
    rows = []
    for row in found:
        how = (", ".join(row.transforms) or "renaming") if row.target else row.reason
        rows.append((row.variant, row.task, row.target or "bundle only", how, *map(row.cell, targets)))
    headings = ("Variant", "Task", "Target", "By, or why not", *targets.values())
    answer(as_json, [row.to_dict() for row in found], table(headings, rows))


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
    if native := is_native(source, origin) and not source.is_file():
        source = folder_of(source)
    model = convert_weights(source, origin, prefix=prefix, **hints)
    with written_whole(output, force=force) as folder:
        model.save_pretrained(folder)
        if native:
            carry_tokenizer(source, folder)
    variant, kept, kind = model.config.variant, model.config.quirks, type(model).__name__
    number, dtype = model.num_parameters(), str(model.dtype).removeprefix("torch.")
    made = {"path": str(output.resolve()), "variant": variant, "quirks": kept, "model_class": kind}
    made |= {"num_parameters": number, "dtype": dtype}
    lines = (f"{output}: {variant}, {kind}, {number:,} parameters", f"  quirks: {', '.join(kept) or 'none'}")
    echo(as_json, made, *lines)
