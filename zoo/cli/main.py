"""The command `zoo`: finds the verb, and ends with one line and an exit code where that fails.

A verb's module is imported when the verb is used, so `zoo --help` imports neither torch nor transformers.
"""

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
from zoo.base.processes import prepare_process
from zoo.cli.reporting import FAILURE, report, show_warning

GROUPS = {
    "Look": (
        *("list", "show", "weights", "data", "diff", "eject", "params", "summary", "attention", "explore"),
        *("settings", "coordinates", "tasks", "recipes", "tokenizers"),
    ),
    "Build": ("build", "new", "plan"),
    "Train": ("train", "generate", "predict", "evaluate"),
    "Compare": ("compare", "bench", "claims"),
    "Convert": ("convert", "export"),
    "Share": ("push", "pull"),
    "This machine": ("doctor", "env", "completion"),
}
"""Every verb by what it is for."""

HOMES = {
    "list": "list:list_verb",
    **dict.fromkeys(("params", "coordinates"), "summary"),
    **dict.fromkeys(("settings", "tasks", "recipes", "tokenizers"), "catalogue"),
    **{"attention": "explore", "claims": "bench", "convert": "export", "eject": "diff", "new": "build"},
    **{"predict": "generate", "pull": "push"},
    **dict.fromkeys(("doctor", "env", "completion"), "machine"),
}
"""Modules of click commands, for verbs that have none called like them."""

VERBS = [verb for verbs in GROUPS.values() for verb in verbs]


def home_of(verb: str) -> tuple[str, str]:
    """The module and the name of a verb's click command."""
    module, _, name = HOMES.get(verb, verb).partition(":")
    return f"zoo.cli.{module}", name or verb


WHOLE = 200  # Letters of a verb's line that are shown in the list of verbs
TRACEBACK = "ZOO_TRACEBACK"  # The environment variable that asks for tracebacks


class VerbGroup(click.Group):
    """The group of verbs, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return VERBS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        from zoo.cli.hints import with_hints

        module, attribute = home_of(cmd_name)
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
        if not args[0].startswith("-"):
            UnknownNameError.check(args[0], valid=VERBS, kind="verb")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs by what they are for."""
        for title, verbs in GROUPS.items():
            found = [(verb, self.get_command(ctx, verb)) for verb in verbs]
            with formatter.section(title):
                formatter.write_dl([(verb, one.get_short_help_str(WHOLE)) for verb, one in found if one])

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


ABOUT_TRACEBACK = "Show Python's traceback when something goes wrong."
TRACEBACK_OPTION = click.Option(["--traceback"], is_flag=True, expose_value=False, help=ABOUT_TRACEBACK)


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
@click.version_option(package_name="transformer-zoo", message="zoo %(version)s", help="Show the version.")
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
    prepare_process()
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
