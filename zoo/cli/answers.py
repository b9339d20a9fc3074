"""Answers given before: what `zoo list` or `zoo show NAME` prints takes seconds to find out, and seldom changes.

An answer is kept in the user's cache under a hash of everything that it depends on: the command, the terminal, every
source of the zoo, and all installed distributions with their versions. So none is ever out of date: a source that was
changed makes another hash. Where plugins are installed, whose sources nobody hashes, nothing is kept.
`ZOO_KEPT_ANSWERS=never` turns it off.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from zoo.base.caching import cache_folder, distributions, sources
from zoo.base.errors import ZooError
from zoo.base.files import write_file

from .importing import without_collecting

VERBS = ("bench", "claims", "diff", "params", "recipes", "show", "tasks", "tokenizers")
"""What only says what the zoo knows."""

WORKING = {"bench": ("run", "verify")}
"""Verbs of theirs that do more than that."""

DOING = ("--hub", "--svg", "--traceback", "--help", "-h")
"""Options that ask the network, write files, or explain."""

TERMINAL = ("COLORTERM", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "TERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Environment variables that decide what output looks like; those of the zoo begin with `ZOO_`."""

SWITCH = "ZOO_KEPT_ANSWERS"
ANSWERS = "answers"
KEPT = 300
"""How many answers stay, the latest."""


def is_answer(arguments: Sequence[str]) -> bool:
    """Whether a command only says what the zoo knows, so that the same is said every time."""
    return (
        bool(arguments)
        and arguments[0] in VERBS
        and not set(arguments).intersection(WORKING.get(arguments[0], ()))
        and not any(argument.startswith(DOING) or os.path.exists(argument) for argument in arguments[1:])
        and os.environ.get(SWITCH) != "never"
        and cache_folder(ANSWERS) is not None
        and not _plugins()
    )


def _plugins() -> bool:
    from zoo.registry.plugins import installed

    return bool(installed())


def place_of_answer(arguments: Sequence[str]) -> Path:
    """Find where the answer to a command is kept."""
    digest = hashlib.sha256()
    for part in (*arguments, "", *surroundings()):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    for file in sources():
        digest.update(str(file).encode("utf-8", "surrogatepass") + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    folder = cache_folder(ANSWERS)
    assert folder is not None, "is_answer has said that there is one"
    return folder / f"{digest.hexdigest()}.txt"


def surroundings() -> Iterator[str]:
    """List what an answer depends on beside the command and the zoo."""
    yield sys.version
    yield f"{sys.stdout.isatty()} {sys.stdout.encoding} {shutil.get_terminal_size()}"
    for name in sorted(os.environ):
        if name in TERMINAL or name.startswith("ZOO_"):
            yield f"{name}={os.environ[name]}"
    yield from distributions()


class Recorder:
    """A stream that keeps what is written to it.

    Args:
        stream: The stream, which gets everything.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.written: list[str] = []

    def write(self, text: str) -> int:
        """Write, and keep it."""
        length = self._stream.write(text)
        self.written.append(text)
        return length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def answer(arguments: Sequence[str], find_out: Callable[[], object]) -> None:
    """Print the answer to a command: the one that was kept, or a new one, which is kept if nothing went wrong."""
    place = place_of_answer(arguments)
    try:
        found = place.read_text(encoding="utf-8")
    except (OSError, ValueError):
        found = None
    if found is not None:
        sys.stdout.write(found)
        sys.stdout.flush()
        return
    said, complained = Recorder(sys.stdout), Recorder(sys.stderr)
    try:
        with redirect_stdout(said), redirect_stderr(complained), without_collecting():
            find_out()
    except SystemExit as end:
        if not end.code and not any(complained.written):
            keep(place, "".join(said.written))
        raise


def keep(place: Path, text: str) -> None:
    """Keep an answer; where that cannot be, it is found out again next time."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(place, text)
        for old in sorted(place.parent.glob("*.txt"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)
    except (OSError, ValueError, ZooError):
        return
