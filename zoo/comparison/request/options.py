"""Options of a comparison, each declared once.

A field of [`Options`][] is an argument of [`zoo.compare`][]. Its metadata hold the flag of `zoo compare`, and whether
the command has it that repeats a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .seeds import MOST_SEEDS

if TYPE_CHECKING:
    from zoo.data.tasks.tables import Column
    from zoo.training import Recipe

MATCHES = ("none", "params", "flops")
WAYS = {"width": "hidden_size", "intermediate": "intermediate_size", "depth": "num_hidden_layers"}
"""Sizes that matching may change, in the order of trial, each with the setting that fixes it in a name."""

LAUNCHERS = ("local", "ray", "submitit")

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """How an argument is spelled on the command line."""

    about: str  # Description, for `help(zoo.compare)` and `zoo compare --help`
    flag: str | None = None
    short: str | None = None
    metavar: str | None = None  # Placeholder of its value in the help
    choices: tuple[str, ...] = ()
    # "text", "number", "real", "count" (above 0), "path", "flag", "values" (A=1,2), or "settings" (KEY=VALUE): the last
    # two any number of times
    kind: str = "text"
    is_shared: bool = False  # Whether `zoo train` has the same flag, so that it is defined with that one
    # Whether it belongs to the command that repeats a comparison; an option of how it is run does not
    repeats: bool = True


def option(about: str, default: Any = None, **others: Any) -> Any:
    """A field with an [`Option`][] as metadata."""
    return field(default=default, metadata={"option": Option(about, **others)})


def shared(flag: str, about: str = "As for [`zoo.training.train`][].") -> Any:
    """A field that `zoo train` has too, which defines the flag."""
    return option(about, flag=flag, is_shared=True)


@dataclass(frozen=True)
class Options:
    """The request."""

    names: Sequence[str] = option(
        'Names of variants, possibly with settings: "vanilla", "vanilla+faithful", "pre-norm:position=rotary".',
        default=(),
    )
    task: str | None = option(
        "What to train them on (zoo tasks); by default the recipe's, or else the one for the first variant.",
        flag="--task",
        metavar="TASK[:OPTION=VALUE,...]",
    )
    data: str | Path | None = shared("--data")
    heldout: str | Path | None = shared("--heldout")
    columns: Sequence[Column] | None = shared("--columns")
    recipe: str | Path | Recipe | None = shared("--recipe")
    tokenizer: str | Path | Mapping[str, Any] | None = shared(
        "--tokenizer", "As for [`zoo.training.train`][]; all variants share it."
    )
    settings: Mapping[str, Any] | None = shared("--set")
    generation: Mapping[str, Any] | None = option("As for [`zoo.training.train`][].")
    arguments: Mapping[str, Any] = field(
        default_factory=dict,
        metadata={
            "option": Option("Fields of transformers' `Seq2SeqTrainingArguments`.", "--training", is_shared=True)
        },
    )
    seeds: int | str | Iterable[int] = option(
        "How many seeds, from the first on, or which ones.", flag="--seeds", metavar="N|A,B,...", default=1
    )
    seed: int | None = option(
        "The first seed, of weights, dropout and the order of data, by default the recipe's, or 0; which examples are "
        "held out depends on none.",
        flag="--seed",
        kind="number",
    )
    decide: bool = option(
        "Begin with three seeds, and give undecided variants another one until they are decided, by a test "
        "with an error of 5 % over all looks and variants.",
        flag="--decide",
        kind="flag",
        default=False,
    )
    margin: float | None = option(
        'The largest difference of the score that decides which counts as none: allows the verdict "the same". Of '
        "perplexity, a difference of the held-out loss.",
        flag="--margin",
        metavar="X",
        kind="real",
    )
    score: str | None = option(
        "A suite that is the score that decides, e.g. blimp, or blimp:limit=100 for 100 pairs of each paradigm; by "
        "default the task's score.",
        flag="--score",
        metavar="SUITE[:OPTION=VALUE,...]",
    )
    most_seeds: int | None = option(
        f"The seeds at which deciding ends; by default {MOST_SEEDS}.", flag="--most-seeds", kind="count"
    )
    budget: str | Mapping[str, float] | None = option(
        "How long every run is: steps=, tokens=, flops= or seconds=; by default that of the recipe.",
        flag="--budget",
        metavar="KIND=NUMBER",
    )
    match: str = option(
        "Match to the baseline's within 1 %, by other sizes: parameters, or FLOPs per token.",
        flag="--match",
        choices=MATCHES,
        default="none",
    )
    match_by: str | None = option(
        "Which size may change; by default the first that leads to it.", flag="--match-by", choices=tuple(WAYS)
    )
    match_to: str | None = option(
        "The variant that the others are made equal to, which need not be compared; by default the baseline.",
        flag="--match-to",
        metavar="NAME",
    )
    sweep: str | Iterable[str] | Mapping[str, Sequence[Any]] | None = option(
        "Choose a training argument for each variant among these values, e.g. lr=1e-3,5e-4, by training examples "
        "that are set aside and the first seed, before it is compared.",
        flag="--sweep",
        metavar="ARGUMENT=A,B,...",
        kind="values",
    )
    baseline: str | None = option(
        "What the others are measured against; by default the first.", flag="--baseline", metavar="NAME"
    )
    jobs: int = option("Runs at a time.", flag="--jobs", short="-j", kind="count", repeats=False, default=1)
    launcher: str = option(
        "Where runs happen: in processes of this machine, or where one of these engines puts them.",
        flag="--launcher",
        choices=LAUNCHERS,
        repeats=False,
        default="local",
    )
    launch_with: Mapping[str, Any] | None = option(
        "An option of the engine: of ray.remote, e.g. num_gpus=1, or of submitit, e.g. slurm_partition=gpu.",
        flag="--launch-with",
        kind="settings",
        repeats=False,
    )
    output_dir: str | Path | None = option(
        "Where checkpoints and results.json go; by default outputs/compare-TASK.",
        flag="--output",
        short="-o",
        kind="path",
    )


def options() -> dict[str, Option]:
    return {one.name: one.metadata["option"] for one in fields(Options)}


def documented(**others: str) -> Callable[[Function], Function]:
    """Put what the options mean into a function's docstring, before what it returns."""
    about = {**{name: one.about for name, one in options().items()}, **others}
    lines = "\n".join(f"        {name}: {text}" for name, text in about.items())

    def decorate(function: Function) -> Function:
        function.__doc__ = (function.__doc__ or "").replace("    Returns:\n", f"    Args:\n{lines}\n\n    Returns:\n")
        return function

    return decorate
