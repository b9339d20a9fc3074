"""A run's folder: whether it is finished, and what it came to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import CHECKPOINT, RELOADED, RESULT, read_json_or_none, write_json
from ..setup.job import Job
from .record import ReloadCheck, Run

KEPT = ("report", "costs", "curve", "outputs", "timings", "circumstances")
"""The worker's part of a run's record."""


def note(job: Job, error: str) -> None:
    """Write down why a run has no result, unless it has one."""
    if result_of(job) is None:
        write_json(Path(job.folder) / RESULT, {"hash": job.hash, "error": error})


def result_of(job: Job) -> dict[str, Any] | None:
    """Read a worker's result or error; None where there is none of this job yet."""
    written = read_json_or_none(Path(job.folder) / RESULT)
    return written if isinstance(written, dict) and written.get("hash") == job.hash else None


def needs_reload(job: Job) -> bool:
    """Whether the model was trained, and has not been loaded since."""
    written = result_of(job)
    if job.trial or written is None or "error" in written:
        return False
    reloaded = read_json_or_none(Path(job.folder) / RELOADED)
    return not isinstance(reloaded, dict) or "error" in reloaded


def finished(job: Job) -> bool:
    """Whether a run has results, or an error that would come again."""
    written = result_of(job)
    return written is not None and not needs_reload(job) and ("error" not in written or bool(written.get("final")))


def read_run(job: Job) -> Run:
    """Read what a run has come to."""
    run = Run(job.name, job.folder, job.seed, job.hash, job.settings)
    written = result_of(job) or {"error": "it has not been run"}
    found: dict[str, Any] = {key: written[key] for key in KEPT if key in written}
    if "error" in written or job.trial:
        return replace(run, **found, error=written.get("error"))
    reloaded = read_json_or_none(Path(job.folder) / RELOADED) or {"error": "the saved model has not been loaded"}
    if "error" in reloaded:
        return replace(run, **found, error=reloaded["error"])
    seconds = reloaded.pop("seconds", None)
    if found.get("timings") and seconds is not None:
        found["timings"] = {**found["timings"], "reload": seconds}
    reload = ReloadCheck(**reloaded)
    error = None
    if not reload.equal:
        error = (
            f"the model in {job.folder}/{CHECKPOINT} answers differently after loading: logits differ by up to "
            f"{reload.largest_difference:.2g}"
        )
    return replace(run, **found, reload=reload, error=error)
