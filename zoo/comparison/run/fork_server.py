"""A process that has imported what runs need, and forks for each: `python -m zoo.comparison.run.fork_server MODULE`.

It reads arguments from stdin, a line each, calls the module's `main` with it in a process of its own, and writes the
exit code to stdout. A fork starts at once where a fresh Python imports for seconds, and shares nothing that a run
leaves behind. When stdin ends, so does this process with what it runs.

It is not the server behind multiprocessing's start method "forkserver": that one imports the user's script again in
every run (and fails where that calls `zoo.compare` without `if __name__ == "__main__"`), is shared by everything in the
user's process, with the environment and imports of whoever was first, and stays until that process ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from contextlib import suppress
from importlib import import_module
from multiprocessing.process import BaseProcess
from typing import TextIO


def serve(name: str) -> None:
    """Answer for a module until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process decides what an interrupt ends
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what runs print is no reply
    import_module(name)
    context = multiprocessing.get_context("fork") if can_fork() else multiprocessing.get_context("spawn")
    # About the threads of libraries, for which no run waits.
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    process = None
    while line := sys.stdin.readline():
        process = context.Process(target=call, args=(name, line.rstrip("\n")))
        process.start()
        threading.Thread(target=reply, args=(process, replies), daemon=True).start()
    if process is not None:
        process.kill()


def can_fork() -> bool:
    """Whether a fork is safe: on Linux, as long as nothing has been said to a GPU."""
    import torch

    return sys.platform == "linux" and not torch.cuda.is_available()


def call(name: str, argument: str) -> None:
    """Call a module's `main` in this process, which is its own; it ends early where its parent does."""
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    sys.exit(import_module(name).main([argument]))


def reply(process: BaseProcess, replies: TextIO) -> None:
    """Wait for a process, and write its exit code, negative for a signal."""
    process.join()
    with suppress(BrokenPipeError, ValueError):
        replies.write(f"{process.exitcode}\n")
        replies.flush()


def end_with_the_parent() -> None:
    """Wait for the end of the process that started this one, and end this one."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    print("a run has ended, because the command that waits for it has", file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    serve(sys.argv[1])
