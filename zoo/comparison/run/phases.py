"""The two parts of a comparison: first what chooses, then what is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..plan import Plan
from ..request.sweep import Values, combinations
from ..setup.job import Job
from ..setup.jobs import JobMaker
from .outcome import finished, read_run
from .record import Run
from .trials import best_of

OnRun = Callable[[int, int, str], None]
Launch = Callable[[Sequence[Job], Callable[[Job], None]], None]
"""Does runs; calls its second argument before each."""


@dataclass
class Phases:
    """First what chooses, then what is compared.

    Attributes:
        plan: What is compared.
        maker: Makes the runs.
        tried: What is swept.
        launch: Does runs.
        on_run: As for [`zoo.compare`][].
        launched: Whether there was anything to do.
        checked: Variants that have been found to fit the examples.
    """

    plan: Plan
    maker: JobMaker
    tried: Values
    launch: Launch
    on_run: OnRun | None
    launched: bool = False
    checked: set[str] = field(default_factory=set)

    def trials(self) -> dict[str, list[Run]]:
        """Try values for every variant.

        Returns:
            Each variant's trials; none without a sweep.
        """
        if not self.tried:
            return {}
        seed, values = self.plan.seeds[0], combinations(self.tried)
        jobs = [self.maker.job(name, seed, each, trial=True) for name in self.plan.names for each in values]
        self.do(jobs)
        return {name: [read_run(job) for job in jobs if job.name == name] for name in self.plan.names}

    def runs(self, trials: Mapping[str, Sequence[Run]]) -> list[Run]:
        """Run every variant with every seed.

        Args:
            trials: What has been tried.

        Returns:
            The runs, variant by variant.
        """
        found = {name: best_of(runs) for name, runs in trials.items()}
        for name, best in found.items():
            if best is not None:
                self.maker.tell(f"{name}: {', '.join(chosen_values(best.settings, self.tried))}")
        names = [name for name in self.plan.names if not self.tried or found[name] is not None]
        jobs = {
            (name, seed): self.maker.job(name, seed, getattr(found.get(name), "settings", {}))
            for seed in self.plan.seeds
            for name in names
        }
        self.do(list(jobs.values()))
        return [
            read_run(jobs[name, seed]) if name in names else without_a_trial(name, seed, trials[name])
            for name in self.plan.names
            for seed in self.plan.seeds
        ]

    def do(self, jobs: Sequence[Job]) -> None:
        """Do those runs that are not finished.

        Args:
            jobs: The runs.
        """
        waiting = [with_flops(job, self.maker) for job in jobs if not finished(job)]
        for variant in {job.variant: None for job in waiting if job.variant not in self.checked}:
            self.maker.ground.check(variant)
            self.checked.add(variant)
        if done := len(jobs) - len(waiting):
            self.maker.tell(f"{done} of {len(jobs)} runs were finished before and are not repeated")
        if not waiting:
            return
        if not self.launched:
            self.plan.write(self.maker.ground.folder)
        self.launched = True
        number = 0

        def announce(job: Job) -> None:
            nonlocal number
            number += 1
            if self.on_run is not None:
                self.on_run(number, len(waiting), job.label)

        self.launch(waiting, announce)


def without_a_trial(name: str, seed: int, trials: Sequence[Run]) -> Run:
    """Make the result of a run that was never begun.

    Args:
        name: The variant's name.
        seed: The seed.
        trials: Its trials, which have all failed.

    Returns:
        A run that failed.
    """
    return Run(name, trials[0].folder, seed, error=f"none of the sweep's trials succeeded: {trials[0].error}")


def chosen_values(chosen: Mapping[str, Any], tried: Values) -> list[str]:
    """Say what a sweep has chosen.

    Args:
        chosen: The best values.
        tried: All values.

    Returns:
        Each with its argument, and whether a better one may lie beyond those that were tried.
    """
    told = []
    for name, value in chosen.items():
        numbers = [other for other in tried[name] if isinstance(other, (int, float))]
        at_the_edge = len(numbers) > 1 and value in (min(numbers), max(numbers))
        told.append(f"{name}={value}{', at the edge of what was tried' if at_the_edge else ''}")
    return told


def with_flops(job: Job, maker: JobMaker) -> Job:
    """Spare the runs of a variant to count the same operations each.

    Args:
        job: A run.
        maker: What counts.

    Returns:
        The run; a trial, which is not measured, as it is.
    """
    if job.trial:
        return job
    forward, training = maker.flops(job.variant)
    return replace(job, flops=(forward, training))
