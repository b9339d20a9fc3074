"""A process that has imported what runs need, and is copied for each: `python -m zoo.comparison.run.server MODULE`.

It reads arguments from stdin, a line each, calls the module's `main` with it in a process of its own, and writes the
exit code to stdout. Copies start at once where a fresh Python imports for seconds, and share nothing that a run leaves
behind. They end when whoever holds the other end of stdin does.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType

from .processes import child_environment


class Server:
    """The other end: starts the process when it is first needed, and again when it is gone.

    Args:
        module: The module.
        threads: How many threads its copies compute with, by default as torch likes.
    """

    def __init__(self, module: str, threads: int | None = None) -> None:
        self.module = module
        self.threads = threads
        self.process: subprocess.Popen[str] | None = None
        self.lock = threading.Lock()

    def call(self, argument: Path) -> int:
        """Call the module's `main` in a process of its own.

        Args:
            argument: Its argument.

        Returns:
            The exit code, negative for a signal.
        """
        with self.lock:
            process = self.started()
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.write(f"{argument}\n")
                process.stdin.flush()
            reply = process.stdout.readline()
            if reply:
                return int(reply)
            self.process = None
            return process.wait()

    def started(self) -> subprocess.Popen[str]:
        """Start the process where it does not run.

        Returns:
            The process.
        """
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_environment(self.threads),
                text=True,
                encoding="utf-8",
            )
        return self.process

    def stop(self) -> None:
        """End it, and what it runs."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def serve(name: str) -> None:
    """Answer until stdin ends.

    Args:
        name: The module.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this one decides what an interrupt ends
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what runs print is no reply
    module = importlib.import_module(name)
    copies = can_copy()
    while line := sys.stdin.readline():
        status = in_a_copy(module, line.rstrip("\n")) if copies else in_a_fresh_one(name, line.rstrip("\n"))
        try:
            replies.write(f"{status}\n")
            replies.flush()
        except BrokenPipeError:
            return


def can_copy() -> bool:
    """Whether a process can be copied: on Linux, as long as nothing has been said to a GPU.

    Returns:
        Whether `os.fork` is safe.
    """
    import torch

    return sys.platform == "linux" and not torch.cuda.is_available()


def in_a_copy(module: ModuleType, argument: str) -> int:
    """Call a module's `main` in a copy of this process.

    Args:
        module: The module.
        argument: Its argument.

    Returns:
        The exit code, negative for a signal.
    """
    with warnings.catch_warnings():
        # They are about the threads of libraries, for which none of ours wait.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            threading.Thread(target=end_with_the_parent, daemon=True).start()
            status = module.main([argument])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    before = signal.signal(signal.SIGTERM, ending(child))
    _, status = os.waitpid(child, 0)
    signal.signal(signal.SIGTERM, before)
    return os.waitstatus_to_exitcode(status)


def in_a_fresh_one(name: str, argument: str) -> int:
    """Call a module's `main` in a fresh Python.

    Args:
        name: The module.
        argument: Its argument.

    Returns:
        The exit code, negative for a signal.
    """
    with subprocess.Popen([sys.executable, "-m", name, argument], stdin=subprocess.DEVNULL) as child:
        signal.signal(signal.SIGTERM, ending(child.pid))
        return child.wait()


def ending(child: int) -> Callable[[int, FrameType | None], None]:
    """Make what ends a child with this process.

    Args:
        child: The child's id.

    Returns:
        A handler of signals.
    """

    def end(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)
        os._exit(128 + number)

    return end


def end_with_the_parent() -> None:
    """Wait until nobody holds the other end of stdin, and end this process."""
    while os.read(0, 1):
        pass
    print("a run has ended, because the command that waits for it has", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    serve(sys.argv[1])
