"""The two phases of a comparison: trials, which choose for each variant, and runs, which are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...training.progress import overview
from ..plan import ComparisonPlan
from ..request.seeds import Values
from ..setup.job import Job
from ..setup.jobs import JobMaker
from .record import Run, finished, read_run
from .search import Choice, chosen_values, search, without_a_trial

OnRun = Callable[[int, int, str], None]
Launch = Callable[[Sequence[Job], Callable[[Job], None]], None]
"""Does runs; calls its second argument before each."""


@dataclass
class Phases:
    """First trials, then runs."""

    plan: ComparisonPlan
    maker: JobMaker
    tried: Values  # The values of the sweep
    launch: Launch
    on_run: OnRun | None
    launched: bool = False  # Whether there was anything to do

    def choices(self) -> dict[str, Choice]:
        """Choose values for every variant by trials; none without a sweep."""
        if not self.tried:
            return {}
        seed, found = self.plan.seeds[0], {}
        searches = {name: search(self.tried) for name in self.plan.names}
        asked = {name: next(one) for name, one in searches.items()}
        while asked:
            jobs = {
                name: [self.maker.job(name, seed, one, trial=True, share=share) for one in values]
                for name, (values, share) in asked.items()
            }
            self.do([job for own in jobs.values() for job in own])
            for name, own in jobs.items():
                try:
                    asked[name] = searches[name].send([read_run(job) for job in own])
                except StopIteration as end:
                    found[name] = end.value
                    del asked[name]
        for name, choice in found.items():
            if choice.values is not None:
                self.maker.tell(f"{name}: {', '.join(chosen_values(choice))}")
        return {name: found[name] for name in self.plan.names}

    def runs(self, names: Sequence[str], seeds: Sequence[int], choices: Mapping[str, Choice]) -> list[Run]:
        """Run variants with every seed, and what was chosen for each."""
        chosen = {name: choices[name].values if name in choices else {} for name in names}
        jobs = {
            (name, seed): self.maker.job(name, seed, values)
            for seed in seeds
            for name, values in chosen.items()
            if values is not None
        }
        self.do(list(jobs.values()))
        return [
            read_run(jobs[name, seed])
            if (name, seed) in jobs
            else without_a_trial(name, seed, [one.run for one in choices[name].trials])
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
