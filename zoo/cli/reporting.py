"""Errors of commands: one line on stderr, and the exit code."""

import errno
import shutil
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import TextIO

import click

from zoo.base.errors import ZooError, ZooWarning, enumerate_names
from zoo.base.files import home_cache
from zoo.base.printed import printable
from zoo.base.synonyms import ARGUMENTS, FIELDS, translate

KEYED = {"--set": FIELDS, "--training": ARGUMENTS}
"""Options that take names of other things, and the names that are best known."""

SMALLEST_ROOM = 1 << 20  # Bytes that are free on a disk that is not full

BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
"""Exit codes: what was given cannot be used; something else went wrong (network, disk, a defect); Ctrl-C."""


def report(error: BaseException, *, with_traceback: bool = False) -> int:
    """Write what went wrong to stderr, in one line."""
    if isinstance(error, click.Abort) and isinstance(error.__cause__, EOFError):
        error = error.__cause__  # click takes any EOFError for the end of input
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        cause = error.__cause__ if isinstance(error, click.Abort) else error  # click wraps what it catches
        message = str(cause) if isinstance(cause, KeyboardInterrupt) else ""
        click.echo(f"zoo: interrupted{message and f'; {message}'}", err=True)
        return INTERRUPTED
    if with_traceback:
        traceback.print_exception(error)
    if isinstance(error, click.NoSuchOption):
        error = understood(error)
    if isinstance(error, click.UsageError):
        where = f"; see `{error.ctx.command_path} --help`" if error.ctx else ""
        write_line("error", error.format_message().rstrip(".") + where)
        return BAD_INPUT
    if isinstance(error, click.ClickException):
        write_line("error", error.format_message())
        return error.exit_code
    if isinstance(error, ZooError):
        write_line("error", str(error))
        return error.exit_code
    write_line("error", describe(error) + ("" if with_traceback else " (--traceback shows where)"))
    return FAILURE


def understood(error: click.NoSuchOption) -> click.UsageError:
    """Suggest the option that means what was given, in place of those that are spelled alike."""
    options = [spelling for option in error.ctx.command.params for spelling in option.opts] if error.ctx else []
    spellings = {spelling.strip("-").replace("-", "_"): spelling for spelling in options}
    given = error.option_name.strip("-").replace("-", "_")
    fields = {name: f"{option} {name}=VALUE" for option, names in KEYED.items() if option in options for name in names}
    meant = spellings.get(translate(given, spellings) or "") or fields.get(translate(given, fields) or given)
    if meant is None:
        return error
    return click.UsageError(f"No such option {error.option_name!r}. Did you mean {meant!r}?", error.ctx)


def describe(error: BaseException) -> str:
    """The system's own message of an exception that is not the zoo's; of others that it is a bug, to be reported."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None and error.errno == errno.ENOSPC:
            return f"{error.strerror}: {enumerate_names(full_places())}"
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    out_of_memory = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    if isinstance(error, (OSError, MemoryError, ModuleNotFoundError)) or out_of_memory:
        return str(error) or "not enough memory"
    from zoo.analysis.environment import version_line
    from zoo.registry.plugins import loaded_plugins, plugin_at_fault

    if plugin := plugin_at_fault(error):
        return f"the plugin of {plugin} failed: {type(error).__name__}: {error}; please report it to its authors"
    if plugins := loaded_plugins():
        return (
            f"{type(error).__name__}: {error}; plugins are loaded ({', '.join(plugins)}), and ZOO_PLUGINS= switches "
            "them off: if it happens without them, it is a bug of the zoo; please report it with this: "
            f"{version_line()}"
        )
    return (
        f"this is a bug of the zoo: {type(error).__name__}: {error}; please report it, as in CONTRIBUTING.md, with "
        f"the command and this: {version_line()}"
    )


def full_places() -> list[str]:
    """Find which disk is full, where the system does not name it: of a write to a file that is open."""
    given = (Path(word).absolute() for word in sys.argv[1:] if not word.startswith("-"))
    caches = filter(None, (Path(tempfile.gettempdir()), home_cache(), Path.cwd()))
    places = dict.fromkeys(next(p for p in (place, *place.parents) if p.is_dir()) for place in (*given, *caches))
    full = [str(place) for place in places if shutil.disk_usage(place).free < SMALLEST_ROOM]
    return full or ["where the output of this command goes"]


def write_line(kind: str, message: str) -> None:
    click.echo(f"zoo: {click.style(kind, bold=True)}: {printable(' '.join(message.split()))}", err=True)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show the zoo's own warnings as users want to read them, all others as Python does."""
    if issubclass(category, ZooWarning):
        write_line("warning", str(message))
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))
