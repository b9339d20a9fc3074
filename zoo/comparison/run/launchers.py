"""Where runs happen: in processes of this machine, or on those of a cluster that an existing engine manages.

A process of its own makes a run's peak memory its own, and keeps what goes wrong from the others.

A launcher takes jobs, with folders that every machine can reach, how many of them to do at a time, options of its
engine, and what to call before each.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.pool import ThreadPool
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.base.files import write_json
from zoo.base.processes import process_variables
from zoo.data.corpora.getting import DATA_VARIABLE

from ..files import RELOADED, RESULT
from ..request import options
from ..setup.job import Job
from .record import Run, needs_reload, note, read_run, result_of

WORKER = "zoo.comparison.run.worker"
RELOAD = "zoo.comparison.run.reload"

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
            command = [sys.executable, "-m", "zoo.comparison.run.fork_server", *self.modules]
            environment, pipe = child_environment(self.threads), subprocess.PIPE
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, encoding="utf-8")
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


def run(job: Job, call: Call = fresh) -> Run:
    """Do what is left to be done of a run, in processes that `call` makes, and read its results."""
    folder = Path(job.folder)
    written = result_of(job)
    if written is None or ("error" in written and not written.get("final")):
        (folder / RESULT).unlink(missing_ok=True)
        (folder / RELOADED).unlink(missing_ok=True)
        status = call(WORKER, job.write())
        note(job, f"the process ended without a result: {reason(status)}")
    if needs_reload(job):
        status = call(RELOAD, folder)
        if not (folder / RELOADED).is_file():
            write_json(folder / RELOADED, {"error": f"the saved model could not be loaded: {reason(status)}"})
    return read_run(job)


def run_file(file: str) -> None:
    """Do the run of a job's file on another machine, which has the same files."""
    run(Job.read(file))


Announce = Callable[[Job], None]


def do_all(jobs: Sequence[Job], processes: int, announce: Announce, do: Callable[[Job], object]) -> None:
    """Do runs in threads that wait for them; an error, or an interrupt, leaves out those that have not begun."""

    def announced(job: Job) -> None:
        announce(job)
        do(job)

    with sigterm_raised(), ThreadPool(min(processes, len(jobs))) as pool:
        for _ in pool.imap_unordered(announced, jobs):
            pass


def launch_locally(jobs: Sequence[Job], processes: int, options: Mapping[str, Any], announce: Announce) -> None:
    threads = None if processes == 1 else max(1, (os.cpu_count() or 1) // processes)
    server = ForkServer(RELOAD, WORKER, threads=threads)  # a model is loaded where nothing of training is imported
    try:
        do_all(jobs, processes, announce, lambda job: run(job, server.call))
    finally:
        server.stop()


def launch_with_ray(jobs: Sequence[Job], processes: int, options: Mapping[str, Any], announce: Announce) -> None:
    """Hand runs to Ray: to the cluster that RAY_ADDRESS names, or to a local one; options are those of `ray.remote`."""
    ray = import_module("ray")
    ours = not ray.is_initialized()
    if ours:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", runtime_env=ray_environment())
    try:
        remote = ray.remote(**{"num_cpus": 1, "max_retries": 0, **options})(run_file)

        def do(job: Job) -> None:
            try:
                ray.get(remote.remote(str(job.write())))
            except ray.exceptions.RayError as error:
                note(job, f"ray could not finish it: {last_line(error)}")

        do_all(jobs, processes, announce, do)
    finally:
        if ours:
            ray.shutdown()


def ray_environment() -> dict[str, Any]:
    """The runtime environment in which Ray's workers find the zoo where it is not installed, and prepared data."""
    shared = {DATA_VARIABLE: os.environ[DATA_VARIABLE]} if DATA_VARIABLE in os.environ else {}
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **shared}}


def launch_with_submitit(jobs: Sequence[Job], processes: int, options: Mapping[str, Any], announce: Announce) -> None:
    """Hand runs to submitit; options are its `update_parameters`'s, and `cluster`, "slurm" if available or "local"."""
    submitit = import_module("submitit")
    settings = dict(options)
    logs = Path(jobs[0].tokenizer).with_name("submitit")
    executor = submitit.AutoExecutor(folder=logs, cluster=settings.pop("cluster", None))
    executor.update_parameters(**{"name": "zoo-compare", "timeout_min": 24 * 60, **settings})

    def do(job: Job) -> None:
        if (error := executor.submit(run_file, str(job.write())).exception()) is not None:
            note(job, f"submitit could not finish it: {last_line(error)}")

    do_all(jobs, processes, announce, do)


LAUNCHERS: dict[str, Callable[[Sequence[Job], int, Mapping[str, Any], Announce], None]] = dict(
    zip(options.LAUNCHERS, (launch_locally, launch_with_ray, launch_with_submitit), strict=True)
)


def check_placing(launcher: str, processes: int, options: Mapping[str, Any]) -> None:
    """Refuse runs that cannot be placed, before any data are read."""
    InvalidChoiceError.check(launcher, valid=LAUNCHERS, kind="launcher")
    if processes < 1:
        raise ConfigError(f"jobs={processes} was given; at least one run must happen at a time")
    if launcher == "local" and options:
        raise ConfigError(
            f"the local launcher has no options, but {next(iter(options))!r} was given; ray and submitit have"
        )
    if launcher != "local" and find_spec(launcher) is None:
        raise ConfigError(
            f"launcher {launcher!r} needs {launcher}, which is not installed: pip install 'transformer-zoo[{launcher}]'"
        )


def last_line(error: BaseException) -> str:
    """Shorten an error that holds a traceback: its class, and the last line of its message with text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"
