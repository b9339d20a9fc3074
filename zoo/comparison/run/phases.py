"""The two phases of a comparison: trials, which choose for each variant, and runs, which are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.training.overview import overview

from ..plan import ComparisonPlan
from ..request.sweep import Values, combinations
from ..setup.job import Job
from ..setup.jobs import JobMaker
from .outcome import finished, read_run
from .record import Run
from .trials import best_of, chosen_values, without_a_trial

OnRun = Callable[[int, int, str], None]
Launch = Callable[[Sequence[Job], Callable[[Job], None]], None]
"""Does runs; calls its second argument before each."""


@dataclass
class Phases:
    """First trials, then runs.

    Attributes:
        plan: What is compared.
        maker: Makes the runs.
        tried: What is swept.
        launch: Does runs.
        on_run: As for [`zoo.compare`][].
        launched: Whether there was anything to do.
    """

    plan: ComparisonPlan
    maker: JobMaker
    tried: Values
    launch: Launch
    on_run: OnRun | None
    launched: bool = False

    def trials(self) -> dict[str, list[Run]]:
        """Try values for every variant; none without a sweep."""
        if not self.tried:
            return {}
        seed, values = self.plan.seeds[0], combinations(self.tried)
        jobs = [self.maker.job(name, seed, each, trial=True) for name in self.plan.names for each in values]
        self.do(jobs)
        return {name: [read_run(job) for job in jobs if job.name == name] for name in self.plan.names}

    def chosen(self, trials: Mapping[str, Sequence[Run]]) -> dict[str, Run | None]:
        """Choose by its trials what each variant is run with, and log it."""
        found = {name: best_of(runs) for name, runs in trials.items()}
        for name, best in found.items():
            if best is not None:
                self.maker.tell(f"{name}: {', '.join(chosen_values(best.settings, self.tried))}")
        return found

    def runs(
        self, names: Sequence[str], seeds: Sequence[int], trials: Mapping[str, Sequence[Run]], chosen: Mapping[str, Any]
    ) -> list[Run]:
        """Run variants with every seed, and what the trials have chosen for each.

        Returns:
            The runs, variant by variant.
        """
        trained = [name for name in names if not self.tried or chosen[name] is not None]
        jobs = {
            (name, seed): self.maker.job(name, seed, getattr(chosen.get(name), "settings", {}))
            for seed in seeds
            for name in trained
        }
        self.do(list(jobs.values()))
        return [
            read_run(jobs[name, seed]) if name in trained else without_a_trial(name, seed, trials[name])
            for name in names
            for seed in seeds
        ]

    def do(self, jobs: Sequence[Job]) -> None:
        """Do those runs that are not finished."""
        waiting = self.maker.ready([job for job in jobs if not finished(job)])
        if done := len(jobs) - len(waiting):
            self.maker.tell(f"{done} of {len(jobs)} runs were finished before and are not repeated")
        if not waiting:
            return
        if not self.launched:
            inputs = self.maker.inputs
            self.plan.write(inputs.folder)
            self.maker.tell(overview(inputs.task, inputs.splits, inputs.encoded))
        self.launched = True
        number = 0

        def announce(job: Job) -> None:
            nonlocal number
            number += 1
            if self.on_run is not None:
                self.on_run(number, len(waiting), job.label)

        self.launch(waiting, announce)
