"""Processes of their own for runs: one makes a run's peak memory its own, and keeps what goes wrong from the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from zoo.base.processes import process_variables

Call = Callable[[str, Path], int]
"""Runs a module of the zoo with an argument in its own process, and returns its exit code."""


class ForkServer:
    """The command's side of [`zoo.comparison.run.fork_server`][], started when it is first needed or is gone."""

    def __init__(self, *modules: str, threads: int | None = None) -> None:
        self.modules = modules
        self.threads = threads
        self.process: subprocess.Popen[str] | None = None
        self.lock = threading.Lock()
        self.waiting: dict[int, SimpleQueue[int]] = {}

    def call(self, module: str, argument: Path) -> int:
        """Call a module's `main` in its own process, from any thread; returns the exit code, negative for a signal."""
        answer: SimpleQueue[int] = SimpleQueue()
        with self.lock:
            process = self.started()
            number = max(self.waiting, default=0) + 1
            self.waiting[number] = answer
            assert process.stdin is not None
            with suppress(OSError):  # of one that is gone, which `listen` reports; on Windows it is no BrokenPipeError
                process.stdin.write(f"{number}\t{module}\t{argument}\n")
                process.stdin.flush()
        return answer.get()

    def started(self) -> subprocess.Popen[str]:
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "zoo.comparison.run.fork_server", *self.modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_environment(self.threads),
                encoding="utf-8",
            )
            threading.Thread(target=self.listen, args=(self.process,), daemon=True).start()
        return self.process

    def listen(self, process: subprocess.Popen[str]) -> None:
        """Hand replies to those who wait for them; where the process is gone, its exit code to all."""
        assert process.stdout is not None
        for line in process.stdout:
            number, code = map(int, line.split())
            with self.lock:
                self.waiting.pop(number).put(code)
        status = process.wait()
        with self.lock:
            self.process = None
            for answer in self.waiting.values():
                answer.put(status)
            self.waiting.clear()

    def stop(self) -> None:
        process = self.process
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            process.wait()


def fresh(module: str, argument: Path) -> int:
    """Run a module of the zoo in a fresh Python, with its output on our stderr."""
    command = [sys.executable, "-m", module, str(argument)]
    with sigterm_raised():
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=child_environment(), check=False
        ).returncode


def child_environment(threads: int | None = None) -> dict[str, str]:
    # The child finds the zoo and the user's modules even where they are not installed.
    found = os.pathsep.join(path for path in sys.path if path)
    chosen = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return {**process_variables(), **chosen, **os.environ, "PYTHONPATH": found}


@contextmanager
def sigterm_raised() -> Iterator[None]:
    """Let SIGTERM end this process by an exception meanwhile, so that its children end, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def reason(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    name = signal.Signals(-status).name
    return f"killed by {name}" + (", as happens when memory runs out" if name == "SIGKILL" else "")
