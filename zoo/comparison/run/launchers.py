"""Where runs happen: in processes of this machine, or on those of a cluster that an existing engine manages.

A launcher takes jobs, with folders that every machine can reach, how many of them to do at a time, options of its
engine, and what to call before each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.base.files import write_json
from zoo.data.corpora.getting import DATA_VARIABLE

from ..files import RELOADED, RESULT
from ..request import options
from ..setup.job import Job
from .processes import Call, ForkServer, fresh, reason, sigterm_raised
from .record import Run, needs_reload, note, read_run, result_of

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
