"""`zoo train`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .output import VERBS, hide_progress_bars, table, write, write_json
from .parameters import (
    PATH,
    VARIANT_NAME,
    Decorated,
    arguments_for,
    data_options,
    decay_option,
    json_option,
    model_settings,
    settings_option,
    together,
    training_option,
)

if TYPE_CHECKING:
    from zoo.training import TrainingResult


TRAINING_FLAGS: dict[str, tuple[Any, str]] = {
    "learning_rate": (float, "The highest learning rate."),
    "num_train_epochs": (float, "How often to go through the data."),
    "max_steps": (int, "How many updates to make, instead of epochs."),
    "per_device_train_batch_size": (int, "Examples an update and device."),
    "gradient_accumulation_steps": (int, "How many batches make an update."),
    "optim": (str, "adamw_torch_fused (the default), adafactor, muon, or another one that transformers knows."),
    "lr_scheduler_type": (
        str,
        "linear, cosine, warmup_stable_decay (decays in the last fifth), inverse_sqrt, constant, ...",
    ),
    "warmup_steps": (float, "Updates until the highest learning rate; below 1, a share of all."),
    "weight_decay": (float, "How much weights shrink."),
    "eval_strategy": (str, "When to evaluate while training: no, steps or epoch."),
    "eval_steps": (float, "Updates between evaluations."),
    "save_strategy": (str, "When to keep a checkpoint: no, steps, epoch or best."),
    "save_steps": (float, "Updates between checkpoints."),
    "early_stopping_patience": (int, "Stop after this number of evaluations without a better one, and keep the best."),
    "z_loss": (float, "Weight of the squared log of the softmax's normalizer in the loss; PaLM has 1e-4."),
    "average": (str, "ema or lawa: also keep and evaluate an average of the weights of the last fifth."),
    "checkpoint_at": (str, "Also save the model after these numbers of tokens, in DIR-revisions: 1M,2M,10M."),
    "checkpoint_in": (str, "The unit of --checkpoint-at: tokens (the default) or words."),
    "report_to": (str, "tensorboard, trackio or wandb, where installed; several with commas."),
}
"""transformers' training arguments that have a flag of their own; all others go through `--training`."""

TRAINING_SWITCHES = {
    "load_best_model_at_end": "Keep the checkpoint with the lowest loss on some of the training data, not the last.",
    "full_determinism": "Use only operations that give the same bits every time, even where that is slow.",
    "use_cpu": "Leave a GPU alone.",
}


def flag(name: str, help: str, **kind: Any) -> Callable[[Decorated], Decorated]:
    return click.option(f"--{name.replace('_', '-')}", name, help=help, **kind)


@click.command("train")
@click.argument("name", type=VARIANT_NAME, metavar="NAME")
@click.option(
    "--task",
    metavar="TASK[:OPTION=VALUE,...]",
    help="Data task (zoo tasks); by default the recipe's, or else the one for the variant.",
)
@data_options
@click.option(
    "--streaming",
    is_flag=True,
    help="Encode texts while they are trained on, without shards on the disk; needs --max-steps.",
)
@click.option(
    "--init",
    metavar="NAME|DIR|REPO",
    help="Start from these weights (zoo weights) of the same variant, with their tokenizer and settings.",
)
@together(*(flag(name, help, type=kind) for name, (kind, help) in TRAINING_FLAGS.items()))
@decay_option
@together(*(flag(name, help, is_flag=True, default=None) for name, help in TRAINING_SWITCHES.items()))
@training_option
@settings_option
@click.option(
    "--parametrization",
    type=click.Choice(["standard", "mup"]),
    help="How weights, scales and learning rates depend on the width; mup is maximal update.  [default: standard]",
)
@click.option("--seed", type=int, help="Seed of weights, dropout and data.  [default: the recipe's, or 0]")
@click.option(
    "--output",
    "-o",
    "output_dir",
    type=PATH,
    metavar="DIR",
    help="Where the model and its tokenizer go.  [default: outputs/train-NAME]",
)
@click.option("--force", is_flag=True, help="Replace the saved model that is in the folder.")
@click.option(
    "--resume",
    is_flag=True,
    help="Keep checkpoints next to DIR until the end, and go on from the last one of an interrupted run.",
)
@click.option("--push", metavar="REPO", help="Push the model to this repository on the Hugging Face Hub at the end.")
@click.option("--with-code", is_flag=True, help="With --push: push the code too, for use without the zoo.")
@click.option("--quiet", is_flag=True, help="No progress bars.")
@json_option
def train(
    name: str,
    task: str | None,
    streaming: bool,
    training: tuple[tuple[str, Any], ...],
    settings: tuple[tuple[str, Any], ...],
    parametrization: str | None,
    output_dir: Path | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a variant, save it with its tokenizer, and score it on held-out examples.

    NAME may carry settings: vanilla+faithful, pre-norm:position=rotary.
    """
    from accelerate import PartialState

    from zoo.training import train as run_training

    hide_progress_bars()
    flags = {name: options.pop(name) for name in ("decay", *TRAINING_FLAGS, *TRAINING_SWITCHES)}
    folder = output_dir if output_dir is not None else Path("outputs") / f"train-{folder_name(name)}"
    flagged = [(flag, value) for flag, value in flags.items() if value is not None]
    arguments = arguments_for([*flagged, *training], run_training)
    if isinstance(arguments.get("report_to"), str):
        arguments["report_to"] = [tracker.strip() for tracker in arguments["report_to"].split(",")]
    if streaming:
        if task is None and options["recipe"] is not None:
            raise click.UsageError("--streaming needs --task")
        task = f"{task or 'language-modeling'}{',' if ':' in (task or '') else ':'}streaming=true"
    if parametrization:
        settings += (("parametrization", parametrization),)
    options |= {"settings": model_settings(settings), "output_dir": folder, "progress": not quiet}
    result = run_training(name, task, **options, **arguments)
    processes = PartialState()
    if processes.is_main_process:
        tell(result, folder, as_json=as_json)
    processes.destroy_process_group()


def tell(result: TrainingResult, folder: Path, *, as_json: bool) -> None:
    from zoo.training.predicting import outputs_of

    url = result.pushed.url if result.pushed is not None else None
    if as_json:
        write_json({"path": str(folder.resolve()), "url": url, **result.report.to_dict()})
        return
    show(result)
    write(f"\n{folder} holds the model and its tokenizer. To use it:")
    place = shlex.quote(str(folder))
    task = result.run.recipe.data_task()
    if (verb := VERBS.get(task.model_task)) and outputs_of(result.model, task) == task.outputs:
        click.echo(f"  zoo {verb} {place} TEXT")  # not broken at the edge of the terminal
    click.echo(f"  zoo evaluate {place}")
    if url is not None:
        write(f"It was pushed to {url}")


def folder_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name).strip("-")


def show(result: TrainingResult) -> None:
    report, data = result.report, result.run.data
    columns = ", ".join(data.train.columns)
    kept = f", the best model after {report.best_step:,}" if report.best_step is not None else ""
    device = report.device if report.num_devices == 1 else f"{report.num_devices} x {report.device}"
    processes = "1 process" if report.num_devices == 1 else f"{report.num_devices} processes"
    averaged = "{heldout_loss:.4f} held-out loss of {kind} over {updates:,} updates"
    epochs = "" if report.epochs is None else f" ({report.epochs:.4g} epochs)"
    rows = [
        ("Data", f"{report.train_examples:,} examples, {report.heldout_examples:,} held out; columns: {columns}"),
        *([("Best by", f"{data.selection.examples:,} other examples of the training data")] if data.selection else []),
        *(
            (f"Share of {name}", f"{found['share']:.2%} of the tokens, {found['epochs']:.4g} epochs")
            for name, found in (report.mixture or {}).items()
        ),
        ("Parameters", f"{report.num_parameters:,}"),
        ("Batch", f"{report.examples_per_update:,} examples an update, on {processes}"),
        ("Steps", f"{report.steps:,}{epochs}{kept}"),
        ("Time", f"{report.train_seconds:,.1f} s, {report.train_tokens_per_second:,.0f} tokens/s on {device}"),
        ("Train loss", f"{report.train_loss:.4f}"),
        ("Held-out loss", f"{report.heldout_loss:.4f}"),
        *([("Averaged", averaged.format(**report.average))] if report.average else []),
        *((score.name, f"{score.value:,.2f}  {score.signature}") for score in report.scores.values()),
    ]
    write(table(("", ""), rows))
