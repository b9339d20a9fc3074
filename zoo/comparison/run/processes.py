"""Processes of their own for runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Call = Callable[[str, Path], int]
"""Runs a module of the zoo with an argument in a process of its own, and returns its exit code."""


def fresh(module: str, argument: Path) -> int:
    """Run a module of the zoo in a fresh Python, whose output goes to our stderr.

    Args:
        module: The module.
        argument: Its argument.

    Returns:
        The exit code, negative for a signal.
    """
    command = [sys.executable, "-m", module, str(argument)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=child_environment()) as child:
        try:
            with sigterm_raised():
                return child.wait()
        except BaseException:
            child.terminate()
            raise


def child_environment(threads: int | None = None) -> dict[str, str]:
    """Make the environment of a process that finds what this one finds.

    Args:
        threads: How many threads it computes with, by default as torch likes.

    Returns:
        The variables.
    """
    # The child finds the zoo and the user's modules even where they are not installed. Threads that sleep while they
    # wait cost little on an idle machine, and save most of the time on a busy one.
    found = os.pathsep.join(path for path in sys.path if path)
    chosen = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return {"OMP_WAIT_POLICY": "passive", **chosen, **os.environ, "PYTHONPATH": found}


@contextmanager
def sigterm_raised() -> Iterator[None]:
    """Let SIGTERM end this process by an exception, so that it does not leave its children behind.

    Yields:
        Nothing; signals are handled as before afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def reason(status: int) -> str:
    """Say in words how a process ended.

    Args:
        status: Its exit code, negative for a signal.

    Returns:
        For instance "killed by SIGKILL, as happens when memory runs out".
    """
    if status >= 0:
        return f"exit code {status}"
    name = signal.Signals(-status).name
    return f"killed by {name}" + (", as happens when memory runs out" if name == "SIGKILL" else "")
