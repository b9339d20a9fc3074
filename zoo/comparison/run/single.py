"""One run from its job to its results: trained in a process of its own, and loaded again by another one."""

from __future__ import annotations

from pathlib import Path

from ..files import RELOADED, RESULT, write_json
from ..setup.job import Job
from .outcome import needs_reload, note, read_run, result_of
from .processes import Call, fresh, reason
from .record import Run

WORKER = "zoo.comparison.run.worker"
RELOAD = "zoo.comparison.run.reload"


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
