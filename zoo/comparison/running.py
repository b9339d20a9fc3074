"""One run from its job to its results: trained in a process of its own, and loaded again by another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from .files import CHECKPOINT, RELOADED, RESULT, read_json, write_json
from .job import Job
from .results import ReloadCheck, Run

WORKER = "zoo.comparison.worker"
RELOAD = "zoo.comparison.reload"

Call = Callable[[str, Path], int]
"""Runs a module of the zoo with an argument in a process of its own, and returns its exit code."""


def run(job: Job, call: Call | None = None) -> Run:
    """Do what is left to be done of a run.

    Args:
        job: What to do.
        call: Makes processes, by default fresh ones.

    Returns:
        Its results; where something failed, why.
    """
    call = call or fresh
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
    """Do a run on another machine, which has the same files.

    Args:
        file: The job's file.
    """
    run(Job.read(file))


def note(job: Job, error: str) -> None:
    """Write down why a run has no result, unless it has one.

    Args:
        job: The run.
        error: Why.
    """
    if result_of(job) is None:
        write_json(Path(job.folder) / RESULT, {"hash": job.hash, "error": error})


def result_of(job: Job) -> dict[str, Any] | None:
    """Read what a worker wrote.

    Args:
        job: What it was told.

    Returns:
        Its result, or its error; None where there is none yet.
    """
    written = read_json(Path(job.folder) / RESULT)
    return written if isinstance(written, dict) and written.get("hash") == job.hash else None


def needs_reload(job: Job) -> bool:
    """Whether a model is still to be loaded again.

    Args:
        job: What its run was told.

    Returns:
        Whether it was trained, and not loaded since.
    """
    written = result_of(job)
    if job.trial or written is None or "error" in written:
        return False
    reloaded = read_json(Path(job.folder) / RELOADED)
    return not isinstance(reloaded, dict) or "error" in reloaded


def finished(job: Job) -> bool:
    """Whether a run need not be done again.

    Args:
        job: What it was told.

    Returns:
        Whether it has results, or an error that would come again.
    """
    written = result_of(job)
    return written is not None and not needs_reload(job) and ("error" not in written or bool(written.get("final")))


def read_run(job: Job) -> Run:
    """Read what a run has come to.

    Args:
        job: What it was told.

    Returns:
        The run.
    """
    run = Run(job.name, job.folder, job.seed, job.hash, job.settings)
    written = result_of(job) or {"error": "it has not been run"}
    found: dict[str, Any] = {key: written[key] for key in ("report", "costs", "curve", "outputs") if key in written}
    if "error" in written or job.trial:
        return replace(run, **found, error=written.get("error"))
    reloaded = read_json(Path(job.folder) / RELOADED) or {"error": "the saved model has not been loaded"}
    if "error" in reloaded:
        return replace(run, **found, error=reloaded["error"])
    reload = ReloadCheck(**reloaded)
    error = None
    if not reload.equal:
        error = (
            f"the model in {job.folder}/{CHECKPOINT} answers differently after loading: logits differ by up to "
            f"{reload.largest_difference:.2g}"
        )
    return replace(run, **found, reload=reload, error=error)


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
