"""`zoo evaluate`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .output import hide_progress_bars, table, write, write_json
from .parameters import (
    FILE,
    FOLDER,
    PATH,
    columns_option,
    engine_option,
    generation_option,
    json_option,
    mixture,
    once,
    refuse_with,
)

LIKELIHOOD = "pseudo-log-likelihood"
METHODS = ("log-probability", LIKELIHOOD, f"{LIKELIHOOD}-within-word", "log-probability-after-mask")

if TYPE_CHECKING:
    from zoo.training.evaluate import Evaluation


@click.command("evaluate")
@click.argument("model", metavar="MODEL")
@click.option(
    "--task",
    metavar="TASK[:OPTION=VALUE,...]",
    help="Task to evaluate it on (zoo tasks); by default the one that it was trained on.",
)
@click.option(
    "--data",
    type=PATH,
    multiple=True,
    callback=mixture,
    help="Other examples: a file, used as a whole, or a folder with a held-out file, or several as for zoo train; of "
    "others 5 % are used; by default those that its training held out.",
)
@click.option("--heldout", type=PATH, help="A file of other examples, used as a whole.")
@columns_option
@click.option("--batch-size", type=click.IntRange(1), help="Examples at a time; by default as in training.")
@generation_option
@click.option(
    "--n-bootstrap",
    default=1000,
    show_default=True,
    type=click.IntRange(1),
    help="How often to resample the examples for 95 % confidence intervals of the task's scores; 1 for none. Loss and "
    "perplexity have none.",
)
@engine_option
@click.option(
    "--outputs",
    type=FILE,
    help="A file for the outputs: .csv, .tsv or .jsonl with text, gold, prediction and probability, else one a line.",
)
@click.option(
    "--report",
    type=FOLDER,
    metavar="DIR",
    help="A folder for what a classifier gets wrong: confusion matrix, scores of every label, worst examples "
    "(HTML and CSV).",
)
@click.option(
    "--suite",
    metavar="SUITE[:OPTION=VALUE,...]",
    help="Score a language model on a suite instead: blimp, ewok, comps, ...; --data is the folder with the suite's "
    "files, or BabyLM's evaluation_data.",
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="With --suite: how a text is scored; by default by what the model was trained for.",
)
@click.option("--limit", type=click.IntRange(1), help="With --suite: items per file; by default all.")
@click.option("--save", is_flag=True, help="Keep the numbers in the model's folder, for its model card (`zoo push`).")
@click.option("--quiet", is_flag=True, help="No progress bars.")
@json_option
def evaluate(
    model: str,
    data: Path | None,
    generation: tuple[tuple[str, Any], ...],
    outputs: Path | None,
    report: Path | None,
    suite: str | None,
    method: str | None,
    limit: int | None,
    save: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Score a trained model on held-out examples.

    Loss, the perplexity of models that write, and the task's scores with their signatures.

    MODEL is a checkpoint's folder with its tokenizer, the name of weights (zoo weights), or a repository on the Hub.
    """
    from zoo.base.files import check_writable
    from zoo.hub.records import keep_evaluation
    from zoo.training.answers import write_answers
    from zoo.training.evaluate import evaluate as run_evaluation

    if suite is not None:
        refuse_with("suite", "model", "data", "method", "limit", "quiet", "as_json")
        show_suite(model, suite, data, method, limit, quiet=quiet, as_json=as_json)
        return
    if method is not None or limit is not None:
        raise click.UsageError("--method and --limit belong to --suite")
    if save and not Path(model).is_dir():
        raise click.BadOptionUsage("save", f"--save needs a folder to write to, and {model!r} is none")
    for place in (Path(model) if save else None, outputs and outputs.parent, report):
        if place is not None:
            check_writable(place)
    hide_progress_bars()
    options |= {"generation": once(generation), "progress": not quiet and sys.stderr.isatty()}
    evaluation = run_evaluation(model, data=data, report=report, **options)
    if outputs is not None and not evaluation.outputs:
        click.echo(f"{outputs} was not written: {evaluation.task} has no outputs", err=True)
    elif outputs is not None:
        write_answers(outputs, evaluation.answers, evaluation.outputs)
    if save:
        # Rounded weights and other ways to generate give other numbers than those of the model as it is.
        how = [f"{name}={value}" for name, value in (("engine", options["engine"]), *generation) if value is not None]
        keep_evaluation(Path(model), evaluation.to_dict(), ", ".join([evaluation.data, *how]))
    if as_json:
        write_json(evaluation.to_dict())
    else:
        show(evaluation)


def show_suite(
    model: str, suite: str, data: Path | None, method: str | None, limit: int | None, *, quiet: bool, as_json: bool
) -> None:
    """Score a model on a suite, and print accuracies by phenomenon with bars."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    from zoo.training.suites import SuiteRun

    run = SuiteRun.parse(suite)
    given: dict[str, Any] = {"data": None if data is None else str(data), "method": method, "limit": limit}
    for name, value in given.items():
        if value is not None and getattr(run, name) not in (None, value):
            raise click.UsageError(f"--suite {suite} and --{name} {value} were given; give one of both")
    run = replace(run, **{name: value for name, value in given.items() if value is not None})
    with tqdm(desc=run.name, unit=" rows", disable=quiet or not sys.stderr.isatty()) as bar:
        result = run.evaluate(model, advance=bar.update)
    if as_json:
        write_json(result.to_dict())
        return
    if result.measure == "correlation":
        low, high = result.interval
        write(f"Spearman's correlation with people's preferences: {result.overall:.3f} ({low:.3f} to {high:.3f})")
        write(f"\n{len(result.scores):,} items, scored by {result.method}")
        return
    spread = "{:.1f} to {:.1f}".format
    rows = [
        (name, f"{one.value:.1f}", spread(*one.interval), f"{one.items:,}", "█" * round(one.value / 4))
        for name, one in result.by("phenomenon").items()
    ]
    averaged = "phenomena" if result.average == "phenomenon" else "paradigms"
    overall = (f"mean of {len(result.by(result.average))} {averaged}", f"{result.overall:.1f}")
    rows.append((*overall, spread(*result.interval), f"{len(result.scores):,}", ""))
    write(table(("Phenomenon", "Accuracy", "95 % interval", "Items", ""), rows, right=("Accuracy", "Items")))
    ties = sum(one.ties for one in result.by("paradigm").values())
    write(f"\nscored by {result.method}; {ties:,} items with equal scores count as wrong")


def show(evaluation: Evaluation) -> None:
    rows = [("Loss", f"{evaluation.loss:.4f}", "")]
    if evaluation.perplexity is not None and "perplexity" not in evaluation.scores:
        rows.append(("Perplexity", f"{evaluation.perplexity:,.2f}", ""))
    for score in evaluation.scores.values():
        interval = "" if score.interval is None else "{:,.2f} to {:,.2f}".format(*score.interval)
        rows.append((score.name, f"{score.value:,.2f}", interval))
    write(table(("", "Value", "95 % interval"), rows, right=("Value",)))
    per_second = evaluation.examples / evaluation.seconds
    which = "held-out examples of its training" if evaluation.repeats_training else "examples"
    write(f"\n{evaluation.examples:,} {which} ({evaluation.data}), {evaluation.target_tokens:,} labels")
    write(f"{per_second:,.1f} examples/s")
    for score in evaluation.scores.values():
        write(f"{score.name}: {score.signature}")
