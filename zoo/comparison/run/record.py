"""A run, its folder and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zoo.base.files import read_mapping, write_json

from ..files import CHECKPOINT, RELOADED, RESULT
from ..setup.job import Job

KEPT = ("report", "costs", "curve", "outputs", "timings", "circumstances")  # The worker's part of a run's record

PHASES = {
    "start": "until the process is ready, with the imports that its server has not made",
    "data": "reading and splitting the data",
    "prepare": "tokens, the model, saving it, and evaluations before the last",
    "train": "steps",
    "evaluate": "loss, and what is written, on the held-out examples",
    "measure": "the suite that decides, costs, and answers to compare with",
    "reload": "another process, which loads the model and asks it again",
}
"""The phases of a run in their order, and what is done in each."""


def note(job: Job, error: str) -> None:
    """Write down why a run has no result, unless it has one."""
    if result_of(job) is None:
        write_json(Path(job.folder) / RESULT, {"hash": job.hash, "error": error})


def result_of(job: Job) -> dict[str, Any] | None:
    """Read a worker's result or error; None before this job has one."""
    written = read_mapping(Path(job.folder) / RESULT)
    return written if written.get("hash") == job.hash else None


def needs_reload(job: Job) -> bool:
    """Whether the model was trained, and has not been loaded since."""
    written = result_of(job)
    if job.trial or written is None or "error" in written:
        return False
    reloaded = read_mapping(Path(job.folder) / RELOADED)
    return not reloaded or "error" in reloaded


def finished(job: Job) -> bool:
    """Whether a run has results, or an error that would come again."""
    written = result_of(job)
    return written is not None and not needs_reload(job) and ("error" not in written or bool(written.get("final")))


def read_run(job: Job) -> Run:
    run = Run(job.name, job.folder, job.seed, job.hash, job.settings)
    written = result_of(job) or {"error": "it has not been run"}
    found: dict[str, Any] = {key: written[key] for key in KEPT if key in written}
    if "error" in written or job.trial:
        return replace(run, **found, error=written.get("error"))
    reloaded = read_mapping(Path(job.folder) / RELOADED) or {"error": "the saved model has not been loaded"}
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


@dataclass(frozen=True)
class ReloadCheck:
    """Behaviour of a saved model in a fresh process, compared with before.

    Attributes:
        auto_class: The Auto class that loaded it.
        largest_difference: Between two logits.
        outputs_equal: Whether greedy outputs, or the best ids, are the same.
        equal: Whether both agree, up to float rounding.
    """

    auto_class: str
    largest_difference: float
    outputs_equal: bool
    equal: bool


@dataclass(frozen=True)
class Run:
    """One variant, trained with one seed.

    Attributes:
        name: The variant's name, with its settings, as it was given.
        folder: Where its checkpoint and its result.json are.
        seed: Of weights, dropout and the order of the data.
        hash: Of everything that decides its results; two runs with the same one are the same run.
        settings: Chosen settings: fields of the configuration by matching, training arguments by a sweep, and
            the budget as steps.
        report: A [`zoo.training.TrainingReport`][] as data, without its history; None where the run failed.
        costs: `zoo.analysis.measuring.Costs` as data; None where the run failed, or nothing was measured.
        curve: Logs of training, in order: each with `step`, `tokens` and `seconds` so far, and
            `loss` (with `learning_rate` and `grad_norm`), `heldout_loss`, or `selection_loss` of examples set aside.
        outputs: Outputs for the held-out examples.
        reload: Its behaviour in a fresh process; None where the run failed.
        error: Why it failed; None where it did not.
        timings: Seconds of each phase, as far as it came; empty where it was interrupted, or an older version ran it.
        circumstances: Where and when it was made, by [`zoo.analysis.environment.circumstances`][]; empty where its
            process was killed.
    """

    name: str
    folder: str
    seed: int = 0
    hash: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] | None = None
    costs: dict[str, Any] | None = None
    curve: list[dict[str, float]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    reload: ReloadCheck | None = None
    error: str | None = None
    timings: dict[str, float] = field(default_factory=dict)
    circumstances: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its unique name in the comparison."""
        return f"{self.name}, seed {self.seed}"

    @property
    def failed(self) -> bool:
        """Whether it has no results, or could not be loaded again."""
        return self.error is not None

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Run:
        """Read what `dataclasses.asdict` wrote."""
        reload = written.get("reload")
        return cls(**{**written, "reload": None if reload is None else ReloadCheck(**reload)})
