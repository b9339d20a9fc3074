"""The command `zoo`: finds the verb, and ends with one line and an exit code where that fails.

A verb's module is imported when the verb is used, so `zoo --help` imports neither torch nor transformers.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from zoo.base.errors import UnknownNameError
from zoo.base.waiting import short_waits
from zoo.cli.reporting import FAILURE, report, show_warning

GROUPS = {
    "Look": {
        "list": ("zoo.cli.list:list_verb", "List the variants."),
        "show": ("zoo.cli.show:show", "Show what a variant is, with a drawing of its block."),
        "weights": ("zoo.cli.weights:weights", "List weights by name, make them again, and verify them."),
        "data": (
            "zoo.cli.data:data",
            "List corpora by name, download and remove them, and prepare texts for training.",
        ),
        "diff": ("zoo.cli.diff:diff", "Show in what two variants differ, and nothing else."),
        "eject": ("zoo.cli.eject:eject", "Write a model as one readable file of PyTorch."),
        "params": ("zoo.cli.summary:params", "Count a variant's parameters, module by module."),
        "summary": (
            "zoo.cli.summary:summary",
            "Show a model's layers, the shapes that pass through them, and parameters.",
        ),
        "attention": ("zoo.cli.attention:attention", "Draw what every layer and head of a model attends to."),
        "explore": (
            "zoo.cli.explore:explore",
            "Look at models on a page: outputs, attention, and early predictions.",
        ),
        "settings": ("zoo.cli.catalogue:settings", "List what can be set, or the values that SETTING takes."),
        "coordinates": (
            "zoo.cli.coordinates:coordinates",
            "Check a parametrization: see whether what is learned grows with the width.",
        ),
        "tasks": ("zoo.cli.catalogue:tasks", "List what models are built for, and what they can be trained on."),
        "recipes": ("zoo.cli.catalogue:recipes", "List the recipes that ship with the zoo, or show RECIPE."),
        "tokenizers": ("zoo.cli.catalogue:tokenizers", "List the kinds of tokenizers that can be trained."),
    },
    "Build": {
        "build": ("zoo.cli.build:build", "Build a new model and save it."),
        "new": ("zoo.cli.new:new", "Write a package with a new part or variant, and its tests."),
        "plan": ("zoo.cli.plan:plan", "Plan how to train a variant on a number of devices: memory, speed, command."),
    },
    "Train": {
        "train": (
            "zoo.cli.train:train",
            "Train a variant, save it with its tokenizer, and score it on held-out examples.",
        ),
        "generate": (
            "zoo.cli.generate:generate",
            "Let a trained model write: translations by an encoder-decoder, continuations by a language model.",
        ),
        "predict": ("zoo.cli.predict:predict", "Let a trained model label texts, or every word of them."),
        "evaluate": ("zoo.cli.evaluate:evaluate", "Score a trained model on held-out examples."),
    },
    "Compare": {
        "compare": ("zoo.cli.compare:compare", "Train variants with the same seeds, data and budget, side by side."),
        "bench": ("zoo.cli.bench:bench", "Run benchmarks, and show what was recorded of every variant."),
        "claims": ("zoo.cli.claims:claims", "Show which claims of papers hold here, by what is recorded."),
    },
    "Convert": {
        "convert": (
            "zoo.cli.convert:convert",
            "Make a model of the zoo from another implementation's weights, and save it.",
        ),
        "export": ("zoo.cli.export:export", "Write a saved model in a form that needs no zoo."),
    },
    "Share": {
        "push": ("zoo.cli.push:push", "Push a checkpoint or an export to the Hugging Face Hub, in one commit."),
        "pull": ("zoo.cli.push:pull", "Pull a model from the Hugging Face Hub, into the cache or into DIR."),
    },
    "This machine": {
        "doctor": ("zoo.cli.machine:doctor", "Try what this machine does well, and show which fast paths follow."),
        "env": ("zoo.cli.machine:env", "Show versions, plugins and devices, for bug reports."),
        "completion": ("zoo.cli.machine:completion", "Print a shell's completion script."),
    },
}
"""Every verb by what it is for: where its click command is, and its line in `zoo --help`."""

VERBS = {verb: entry for group in GROUPS.values() for verb, entry in group.items()}

TRACEBACK = "ZOO_TRACEBACK"
"""The environment variable that asks for tracebacks."""


class VerbGroup(click.Group):
    """The group of verbs, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs, in the order in which they are helpful."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        from zoo.cli.hints import with_hints

        module, _, attribute = VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        inner = command.commands if isinstance(command, click.Group) else {}
        for name, one in {cmd_name: command, **{f"{cmd_name} {name}": one for name, one in inner.items()}}.items():
            if TRACEBACK_OPTION not in one.params:
                one.params.append(TRACEBACK_OPTION)
            with_hints(one, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or name the nearest one."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            raise UnknownNameError(args[0], VERBS, kind="verb")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs without importing them."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb, summary) for verb, (_, summary) in verbs.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit with one line on stderr where that fails."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            with warnings.catch_warnings():
                warnings.showwarning = show_warning
                status = super().main(arguments, prog_name or "zoo", complete_var, standalone_mode=False, **extra)
        except BrokenPipeError:
            end_unread()
        except (Exception, KeyboardInterrupt) as error:
            asked = "--traceback" in arguments or os.environ.get(TRACEBACK, "") not in ("", "0")
            sys.exit(report(error, with_traceback=asked))
        sys.exit(status if isinstance(status, int) else 0)


def end_unread() -> NoReturn:
    """End after the reader of a pipe has closed it; buffered output is discarded."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(FAILURE)


def _show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from zoo import __version__

        click.echo(f"zoo {__version__}")
        ctx.exit()


TRACEBACK_OPTION = click.Option(
    ["--traceback"],
    is_flag=True,
    expose_value=False,
    help="Show Python's traceback when something goes wrong.",
)


@click.group(
    "zoo",
    cls=VerbGroup,
    invoke_without_command=True,
    subcommand_metavar="VERB ...",
    # transformers spells arguments with underscores, a command line with hyphens: both are understood everywhere.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda word: word.replace("_", "-"),
    },
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Transformers and their variants, one line away.

    `zoo VERB --help` explains a verb. NAMEs may carry settings:

    \b
      d2l-style@small                               a size
      vanilla+faithful                              every quirk of the original
      vanilla+cross-attention-reuses-self           one quirk
      pre-norm:position=rotary,hidden_size=256      other settings
    """  # noqa: D301 - click reads the character \b
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


cli.params.append(TRACEBACK_OPTION)


def main() -> None:
    """Run the command line and exit."""
    os.environ.update(short_waits())  # OpenMP reads this when torch is imported
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of files may hold what the terminal's encoding, or any, lacks.
            stream.reconfigure(errors="backslashreplace")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # A process that ends gives its memory back as a whole: Python need not look through a million objects for garbage.
    atexit.register(gc.freeze)
    gc.set_threshold(50_000, 20)  # importing torch makes a million objects, and no garbage
    try:
        cli()
    except BrokenPipeError:
        end_unread()


if __name__ == "__main__":
    main()
