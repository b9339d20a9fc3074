"""`zoo plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from .output import heading, indented, is_narrow, table, write, write_json
from .parameters import VARIANT_OR_SAVED, given_options, json_option, mixture, refuse_with, task_option

if TYPE_CHECKING:
    from zoo.analysis.scaling.planning import Plan
    from zoo.data.corpora.estimating import DataEstimate

WIDE = 150  # From how many columns plans are rows, and not columns


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """Numbers of devices, between commas."""

    name = "numbers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        words = str(value).split(",")
        if not all(word.strip().isdecimal() for word in words):
            self.fail(f"{value!r} is no number of devices, nor several between commas", param, ctx)
        return tuple(int(word) for word in words)


@click.command("plan")
@click.argument("name", type=VARIANT_OR_SAVED, metavar="NAME|DIR")
@task_option()
@click.option(
    "--devices", default="8", show_default=True, type=Numbers(), metavar="N,N", help="How many; several between commas."
)
@click.option("--device", default="h100", show_default=True, metavar="DEVICE", help="Which: h100, a100, rtx-4090, ...")
@click.option("--memory", metavar="SIZE", help="Memory of each, for instance 80GiB; by default that of DEVICE.")
@click.option("--seq-len", type=click.IntRange(1), help="Tokens of a sequence; by default the model's positions.")
@click.option("--tokens-per-update", default=2**19, show_default=True, type=click.IntRange(1), help="About how many.")
@click.option("--optim", default="adamw_torch_fused", show_default=True, help="The optimiser, as for zoo train.")
@click.option(
    "--data",
    multiple=True,
    callback=mixture,
    metavar="DIR|NAME",
    help="A prepared folder (zoo data prepare), or a corpus (zoo data): its tokens, updates and hours of an epoch.",
)
@click.option(
    "--recipe",
    metavar="NAME|FILE",
    help="A recipe (zoo recipes): its sizes, blocks and batches, and what the whole run costs.",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a table for a document.")
@json_option
def plan(
    name: str,
    task: str | None,
    devices: tuple[int, ...],
    data: Path | None,
    recipe: str | None,
    as_markdown: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Plan how to train a variant on a number of devices: memory, speed, command.

    Strategy, memory on each device, the most tokens a second that they can reach, and what to type. NAME may carry
    sizes: llama-style:hidden_size=4096,num_hidden_layers=32. Nothing is allocated.
    """
    from zoo.analysis.scaling import planning

    refuse_with("as_markdown", *(one for one in given_options() if one not in ("data", "as_json")))
    found = None
    if data is not None:
        from zoo.data.corpora.estimating import estimate

        found = estimate(data)
        asked["data"] = str(data)
    epochs, tokens, steps = None, None, None
    if recipe is not None:
        if both := given_options().keys() & {"task", "seq_len", "tokens_per_update"}:
            raise click.UsageError(f"--recipe has its own --{min(both).replace('_', '-')}; leave that out")
        name, task, arguments, epochs, tokens, steps = recipe_run(name, recipe)
        asked |= {key: value for key, value in arguments.items() if key not in given_options()}
    plans = [planning.plan(name, task, devices=number, **asked) for number in devices]
    whole = tokens if found is None or epochs is None else round(found.tokens * epochs)
    runs = [whole if steps is None else steps * plan.tokens_per_update for plan in plans]
    if as_json:
        costs = [({} if found is None else epoch(plan, found)) for plan in plans]
        whole_runs = [({} if run is None else run_of(plan, run)) for plan, run in zip(plans, runs, strict=True)]
        write_json([plan.to_dict() | one | run for plan, one, run in zip(plans, costs, whole_runs, strict=True)])
        return
    if as_markdown:
        click.echo(planning.to_markdown(plans), nl=False)
        return
    rows = [planning.row(plan) for plan in plans]
    write(Text(planning.heading(plans[0]), style="bold"))
    if is_narrow(WIDE):
        turned = list(zip(planning.COLUMNS, *rows, strict=True))
        write(table(("", *(["Memory in GiB, on each"] + [""] * (len(rows) - 1))), turned))
    else:
        numbers = [name for name in planning.COLUMNS if name not in ("Strategy", "Bound")]
        write(table(planning.COLUMNS, rows, right=numbers))
    if plans[0].cache is not None:
        write(f"\nTo generate, the cache of a sequence takes {plans[0].cache / 2**20:,.1f} MiB, in bfloat16")
    for made, run in zip(plans, runs, strict=True):
        write(heading(f"On {made.devices}"), *([] if made.slurm is None else [indented("For sbatch:")]))
        click.echo(made.slurm or made.command)  # not broken at the edge of the terminal
        if found is not None:
            write(f"\n{described(f'An epoch of {data}', epoch(made, found))}")
        if run is not None:
            cost = run_of(made, run)
            hours = cost["run_seconds"] / 3600
            time = f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:,.1f} minutes"
            write(f"\nThe whole run: about {run:,} tokens, {cost['run_updates']:,.0f} updates, at least {time}")


def recipe_run(name: str, recipe: str) -> tuple[str, str, dict[str, Any], float | None, int | None, int | None]:
    """Read a recipe: the variant with its sizes, its task, arguments of `zoo.analysis.scaling.plan`, and the length.

    The length is in epochs, in tokens (from the words that end the run), and in steps, None where it is not set so.
    """
    from zoo.analysis.own_settings import resolve
    from zoo.building.weights import is_saved
    from zoo.data.corpora.estimating import TOKENS_PER_WORD
    from zoo.registry import VARIANTS, parse_name
    from zoo.training.recipe import load_recipe
    from zoo.training.saving import read_marks

    run = load_recipe(recipe)
    data_task, given = run.data_task(), run.arguments
    block = getattr(data_task, "block_size", None)
    if block is None:
        raise click.UsageError(f"--recipe is planned for raw text in blocks; {recipe} is for {run.task}")
    vocabulary = run.tokenizer.get("vocab_size")
    fitting = {} if vocabulary is None else {"vocab_size": vocabulary}
    spec = parse_name(resolve(name, spelled=run.model)[0] if is_saved(name) else name)
    if is_saved(name):
        spec = replace(spec, overrides={**spec.overrides, **fitting})
    tasks = [one for one in VARIANTS.get(spec.name).tasks if one in data_task.model_tasks]
    if not tasks:
        raise click.UsageError(f"{name} is no model for {run.task}, the task of {recipe}")
    own = spec.overrides.get("vocab_size", vocabulary)
    if own is None:
        problem = f"how large a vocabulary {recipe} has depends on the data"
        raise click.UsageError(f"{problem}; give its size: {name}{',' if ':' in name else ':'}vocab_size=N")
    if own != (vocabulary or own):
        raise click.UsageError(f"vocab_size={own} was given, and {recipe} has {vocabulary}; leave it out")
    sizes = {key: value for key, value in run.model_settings(str(spec)).items() if key != "sizes"}
    batch = given.get("per_device_train_batch_size", 8) * given.get("gradient_accumulation_steps", 1)
    arguments = {"seq_len": block, "tokens_per_update": batch * block, "what": [str(spec), "--recipe", recipe]}
    if "optim" in given:
        arguments["optim"] = given["optim"]
    marks = read_marks(given["checkpoint_at"]) if given.get("checkpoint_in") == "words" else {}
    tokens = round(max(marks.values()) * TOKENS_PER_WORD) if marks else None
    length = (given.get("num_train_epochs"), tokens, given.get("max_steps"))  # the last one wins
    return str(replace(spec, overrides={**spec.overrides, **fitting, **sizes})), tasks[0], arguments, *length


def run_of(plan: Plan, tokens: int) -> dict[str, Any]:
    """Tokens and updates of a whole run, and its least seconds."""
    updates, seconds = tokens / plan.tokens_per_update, tokens / plan.tokens_per_second
    return {"run_tokens": tokens, "run_updates": updates, "run_seconds": seconds}


def epoch(plan: Plan, data: DataEstimate) -> dict[str, Any]:
    """Updates of an epoch of data, and least seconds of training, reading and preparing it."""
    return {
        "epoch_tokens": data.tokens,
        "epoch_tokens_estimated": data.estimated,
        "epoch_updates": data.tokens / plan.tokens_per_update,
        "epoch_seconds": data.tokens / plan.tokens_per_second,
        "read_seconds": data.read_seconds,
        "prepare_seconds": data.prepare_seconds,
    }


def described(name: str, found: dict[str, Any]) -> str:
    tokens = f"{found['epoch_tokens']:,} tokens"
    if found["epoch_tokens_estimated"]:
        tokens = f"about {found['epoch_tokens']:,} tokens (estimated from its words)"
    reading = "" if found["read_seconds"] is None else f"; reading it takes {found['read_seconds']:,.1f} s of a core"
    if found["prepare_seconds"] is not None:
        reading = f"; preparing it takes about {found['prepare_seconds'] / 60:,.1f} minutes of a core, once"
    return (
        f"{name}: {tokens}, {found['epoch_updates']:,.1f} updates, at least "
        f"{found['epoch_seconds'] / 3600:,.2f} hours{reading}"
    )
