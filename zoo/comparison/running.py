"""Processes: each run in one of its own, and another one to load its model again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .files import CHECKPOINT, RESULT
from .job import Job
from .results import ReloadCheck, Run


def run(job: Job) -> Run:
    """Train one variant, and load what was saved.

    Args:
        job: What to do.

    Returns:
        Its results; where something failed, why.
    """
    file = job.write()
    (Path(job.folder) / RESULT).unlink(missing_ok=True)
    status, _ = call("zoo.comparison.worker", file)
    result = read_result(Path(job.folder), status)
    if "error" in result:
        return Run(job.name, job.folder, job.seed, error=str(result["error"]))
    trained: dict[str, Any] = {"report": result["report"], "outputs": result["outputs"]}
    status, written = call("zoo.comparison.reload", Path(job.folder))
    if status != 0:
        return Run(
            job.name, job.folder, job.seed, **trained, error=f"the saved model could not be loaded: {reason(status)}"
        )
    reload = ReloadCheck(**json.loads(written.splitlines()[-1]))
    error = None
    if not reload.equal:
        error = (
            f"the model in {job.folder}/{CHECKPOINT} answers differently after loading: logits differ by up to "
            f"{reload.largest_difference:.2g}"
        )
    return Run(job.name, job.folder, job.seed, **trained, reload=reload, error=error)


def call(module: str, argument: Path) -> tuple[int, str]:
    """Run a module of the zoo in a fresh Python, whose stderr is ours.

    Args:
        module: The module.
        argument: Its argument.

    Returns:
        The exit code, negative for a signal, and what it wrote to stdout.
    """
    # The child finds what we find, even where the zoo or the user's modules are not installed. Threads that sleep while
    # they wait cost little on an idle machine, and save most of the time on a busy one.
    found = os.pathsep.join(path for path in sys.path if path)
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ, "PYTHONPATH": found}
    command = [sys.executable, "-m", module, str(argument)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8") as child:
        try:
            with sigterm_raised():
                written, _ = child.communicate()
        except BaseException:
            child.terminate()
            raise
    return child.returncode, written


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


def read_result(folder: Path, status: int) -> dict[str, Any]:
    """Read what a worker wrote.

    Args:
        folder: The run's folder.
        status: The worker's exit code.

    Returns:
        Its result, or its error.
    """
    file = folder / RESULT
    if not file.is_file():
        return {"error": f"the process ended without a result: {reason(status)}"}
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result


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
