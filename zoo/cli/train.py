"""`zoo train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .compare import read_columns
from .output import table, write, write_json
from .parameters import Setting, VariantName, json_option

if TYPE_CHECKING:
    from zoo.training import TrainingReport


@click.command("train")
@click.argument("name", type=VariantName(), metavar="NAME")
@click.option("--task", default="translation", show_default=True, metavar="TASK", help="What to train it on.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="A file or folder of examples; by default what ships with the zoo."
)
@click.option(
    "--heldout", type=click.Path(path_type=Path), help="The file to evaluate on; by default what --data says."
)
@click.option("--columns", metavar="A,B", help="Names or numbers of the columns; by default the first ones.")
@click.option("--tokenizer", metavar="KIND|DIR", help="bpe, word or character, or a folder with a tokenizer.json.")
@click.option(
    "--recipe", metavar="NAME|FILE", help="What is not said here; by default the recipe called like the task."
)
@click.option("--learning-rate", "--learning_rate", type=float, help="The highest learning rate.")
@click.option("--num-train-epochs", "--num_train_epochs", type=float, help="How often to go through the data.")
@click.option("--max-steps", "--max_steps", type=int, help="How many updates to make, instead of epochs.")
@click.option(
    "--per-device-train-batch-size", "--per_device_train_batch_size", type=int, help="Examples an update and device."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=Setting(),
    help="Another of transformers' training arguments, e.g. lr_scheduler_type=cosine.",
)
@click.option(
    "--model", "model_settings", multiple=True, type=Setting(), help="A configuration field, e.g. hidden_size=256."
)
@click.option("--seed", default=0, show_default=True, help="Seed of weights, dropout and data.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the model and its tokenizer go.  [default: outputs/train-NAME]",
)
@click.option("--force", is_flag=True, help="Replace the saved model that is in the folder.")
@click.option(
    "--resume",
    is_flag=True,
    help="Keep checkpoints beside DIR, and go on from the last one that an interrupted run has left there.",
)
@click.option("--quiet", is_flag=True, help="No progress bars.")
@json_option
def train(
    name: str,
    task: str,
    data: Path | None,
    heldout: Path | None,
    columns: str | None,
    tokenizer: str | None,
    recipe: str | None,
    settings: tuple[tuple[str, Any], ...],
    model_settings: tuple[tuple[str, Any], ...],
    seed: int,
    output: Path | None,
    force: bool,
    resume: bool,
    quiet: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Train a variant from random weights, score it on held-out examples, and save it with its tokenizer.

    NAME may carry settings: vanilla+faithful, pre-norm:position=rotary.
    """
    from transformers.utils import logging

    from zoo.training import train as run_training

    logging.disable_progress_bar()
    folder = output if output is not None else Path("outputs") / f"train-{folder_name(name)}"
    arguments = {**{flag: value for flag, value in flags.items() if value is not None}, **dict(settings)}
    result = run_training(
        name,
        task,
        data=data,
        heldout=heldout,
        columns=read_columns(columns),
        recipe=recipe,
        tokenizer=tokenizer,
        settings=dict(model_settings),
        output_dir=folder,
        force=force,
        resume=resume,
        seed=seed,
        progress=not quiet,
        **arguments,
    )
    if as_json:
        write_json({"path": str(folder.resolve()), **result.report.to_dict()})
        return
    show(result.report)
    write(f"\n{folder} holds the model and its tokenizer. To use it:")
    write(f"  zoo generate {folder} TEXT")
    write(f"  zoo evaluate {folder}")


def folder_name(name: str) -> str:
    """Make a folder's name of a variant's.

    Args:
        name: The variant's name, possibly with settings.

    Returns:
        Letters, digits and hyphens.
    """
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name).strip("-")


def show(report: TrainingReport) -> None:
    """Print what a training run came to.

    Args:
        report: Its numbers.
    """
    rows = [
        ("Parameters", f"{report.num_parameters:,}"),
        ("Steps", f"{report.steps:,} ({report.epochs:.4g} epochs)"),
        ("Time", f"{report.train_seconds:,.1f} s, {report.train_tokens_per_second:,.0f} tokens/s on {report.device}"),
        ("Train loss", f"{report.train_loss:.4f}"),
        ("Held-out loss", f"{report.heldout_loss:.4f}"),
        *((score.name, f"{score.value:.1f}  {score.signature}") for score in report.scores.values()),
    ]
    write(table(("", ""), rows))
