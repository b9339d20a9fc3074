"""A process that has imported what runs need, and forks for each: `python -m zoo.comparison.run.fork_server MODULES`.

It reads requests from stdin, a number, one of the modules and an argument a line with tabs between them, calls the
module's `main` with the argument in its own process, and writes the number and the exit code to stdout. A fork
starts at once where a fresh Python imports for seconds, and shares no state of earlier runs. A call has only
the modules up to its own imported: after the first, a fork of this process answers for the others. When
stdin ends, so does this process with what it runs.

It is not the server of multiprocessing's start method "forkserver": that one imports the user's script again in
every run (and fails where that calls `zoo.compare` without `if __name__ == "__main__"`), is shared by everything in the
user's process, with the environment and imports of the first call, and stays until that process ends.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.process import BaseProcess
from typing import TextIO


def serve(requests: TextIO, replies: TextIO, modules: Sequence[str]) -> None:
    """Answer with a short line each until requests end."""
    own, *others = modules
    gc.disable()
    import_module(own)
    gc.freeze()  # or every run would look for garbage among what was imported, and copy all of it to do so
    gc.enable()
    # About the threads of libraries, for which no run waits.
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    context = multiprocessing.get_context("fork") if can_fork() else multiprocessing.get_context("spawn")
    further = serve_further(replies, others) if others and can_fork() else None
    running = []
    while line := requests.readline():
        number, module, argument = line.rstrip("\n").split("\t", 2)
        if further is not None and module != own:
            further.write(line)
            further.flush()
            continue
        process = context.Process(target=call, args=(module, argument))
        process.start()
        running.append(process)
        threading.Thread(target=reply, args=(number, process, replies), daemon=True).start()
    for process in running:
        process.kill()
    if further is not None:
        further.close()


def serve_further(replies: TextIO, modules: Sequence[str]) -> TextIO:
    """Serve requests for further modules in a fork, and return its pipe; without the fork, this process ends, too."""
    reading, writing = os.pipe()

    def answer() -> None:
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as requests:
            serve(requests, replies, modules)

    process = multiprocessing.get_context("fork").Process(target=answer)
    process.start()
    os.close(reading)
    threading.Thread(target=lambda: os._exit(status_of(process)), daemon=True).start()
    return os.fdopen(writing, "w", encoding="utf-8")


def status_of(process: BaseProcess) -> int:
    """Wait for the end of a process; its exit code, negative for a signal."""
    process.join()
    while (status := process.exitcode) is None:  # where the start of another collected it, and has not noted it yet
        time.sleep(0.001)
    return status


def can_fork() -> bool:
    """Whether a fork is safe: on Linux, as long as no GPU was initialised."""
    import torch

    return sys.platform == "linux" and not torch.cuda.is_available()


def call(name: str, argument: str) -> None:
    """Call a module's `main` in this process, which is its own; it ends early where its parent does."""
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    sys.exit(import_module(name).main([argument]))


def reply(number: str, process: BaseProcess, replies: TextIO) -> None:
    """Wait for a process, and write the number of its request and its exit code."""
    status = status_of(process)
    with suppress(OSError, ValueError):
        os.write(replies.fileno(), f"{number} {status}\n".encode())


def end_with_the_parent() -> None:
    """Wait for the end of the process that started this one, and end this one."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    print("a run has ended, because the command that waits for it has", file=sys.stderr, flush=True)
    os._exit(1)


def main(modules: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of runs is no reply
    with open(0, encoding="utf-8") as requests:  # sys.stdin has a code page on Windows
        serve(requests, replies, modules)


if __name__ == "__main__":
    main(sys.argv[1:])
