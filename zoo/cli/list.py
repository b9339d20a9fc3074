"""`zoo list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from zoo.base.errors import suggest
from zoo.registry import list_variants

from .output import origin_text, table, width, write, write_json
from .parameters import Registered, json_option, task_option

if TYPE_CHECKING:
    from zoo.registry import Variant

HEADINGS = ("Name", "Tasks", "Summary", "Paper", "From")

TASK_LETTERS = {
    "seq2seq-lm": "s",
    "causal-lm": "c",
    "masked-lm": "m",
    "sequence-classification": "q",
    "token-classification": "t",
    "feature-extraction": "f",
}
"""How the table on a terminal abbreviates tasks."""

WIDE = 110  # Width from which the paper and the provenance have their own columns


@click.command("list")
@click.argument("patterns", nargs=-1, type=Registered("pattern", str, list_variants), metavar="[PATTERN]...")
@task_option("Only variants that can be built for this task.")
@click.option("--tag", metavar="TAG", help="Only variants with this tag, e.g. decoder, pre-norm, modern, original.")
@click.option(
    "--hub", "owner", metavar="OWNER", help="The zoo's models of this user or organisation on the Hub instead."
)
@click.option(
    "--sort", metavar="BENCHMARK", help="The best of what is recorded of a benchmark first, with score and verdict."
)
@click.option("--wide", is_flag=True, help="Papers and distributions as well, however narrow the terminal is.")
@json_option
def list_verb(
    patterns: tuple[str, ...],
    task: str | None,
    tag: str | None,
    owner: str | None,
    sort: str | None,
    wide: bool,
    as_json: bool,
) -> None:
    """List the variants.

    A PATTERN is a name with wildcards ('*-norm'); one that begins with '!' leaves out what it matches. Quote them, so
    that the shell leaves them alone.
    """
    if owner is not None:
        if patterns or task or tag or sort or wide:
            others = "give no PATTERN, --task, --tag, --sort or --wide"
            raise click.UsageError(f"--hub lists all of the owner's models: {others}")
        list_models(owner, as_json=as_json)
        return
    if sort is not None and wide:
        shown = "scores and verdicts in place of papers and distributions"
        raise click.UsageError(f"--sort shows {shown}: leave out --wide")
    from zoo.registry import VARIANTS

    variants = [VARIANTS.get(name) for name in list_variants(patterns or "*", task=task, tag=tag)]
    standings = standings_in(sort) if sort is not None else {}
    places = {name: place for place, name in enumerate(standings)}
    variants.sort(key=lambda variant: places.get(variant.name, len(places)))
    if as_json:
        listed = []
        for variant in variants:
            one = {name: getattr(variant, name) for name in ("name", "tasks", "tags", "summary", "paper", "source")}
            one |= {"quirks": list(variant.quirks), "distribution": variant.origin.distribution}
            standing = {"standing": standings.get(variant.name, (None,))[0]} if sort is not None else {}
            listed.append({**one, "version": variant.origin.version, **standing})
        write_json(listed)
        return
    if not variants:
        wanted = " ".join(patterns)
        click.echo(f"zoo: no variant matches{f' {wanted!r}' if wanted else ''}{suggest(wanted, VARIANTS)}", err=True)
        return
    if sort is not None:
        unknown: tuple[dict[str, Any], str] = ({"verdict": "not recorded"}, "")
        found = [(v, *standings.get(v.name, unknown)) for v in variants]
        ranked = [(v.name, score, standing["verdict"], v.summary) for v, standing, score in found]
        write(table(("Name", sort, "Verdict", "Summary"), ranked))
        return
    columns = width()
    if columns is None:
        rows = [(v.name, " ".join(v.tasks), v.summary, v.paper or "", provenance(v)) for v in variants]
        write(table(HEADINGS, rows))
        return
    headings = HEADINGS if wide or columns >= WIDE else HEADINGS[:3]
    rows = [(v.name, letters(v.tasks), v.summary, (v.paper or "").partition(",")[0], provenance(v)) for v in variants]
    write(table(headings, [row[: len(headings)] for row in rows]))
    legend = [f"{letter} {task}" for task, letter in TASK_LETTERS.items()]
    write(Text("\nTasks, the default as a capital letter:", style="dim"))
    write(*(Text(f"  {'   '.join(legend[half : half + 3])}", style="dim") for half in (0, 3)))


def standings_in(benchmark: str) -> dict[str, tuple[dict[str, Any], str]]:
    from zoo.comparison.benchmarks.judging import as_data, ranking
    from zoo.comparison.benchmarks.page import spread

    verdicts = ranking(benchmark)
    return {
        one.variant: (as_data(verdicts, one), spread(one.samples.get(verdicts.score))) for one in verdicts.standings
    }


def list_models(owner: str, *, as_json: bool) -> None:
    from zoo.hub import list_hub

    models = list_hub(owner)
    if as_json:
        write_json([vars(model) for model in models])
    elif models:
        rows = [(model.repo_id, model.pipeline or "", " ".join(model.tags)) for model in models]
        write(table(("Repository", "Task", "Tags"), rows))
    else:
        click.echo(f"zoo: {owner} has no model of the zoo on the Hub that the token in use may see", err=True)


def letters(tasks: tuple[str, ...]) -> str:
    """Abbreviate a variant's tasks, each in its own place."""
    return "".join(
        "." if task not in tasks else letter.upper() if task == tasks[0] else letter
        for task, letter in TASK_LETTERS.items()
    )


def provenance(variant: Variant) -> str:
    return origin_text(variant.origin.distribution, variant.origin.version)
