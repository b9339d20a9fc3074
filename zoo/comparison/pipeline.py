"""A comparison from what is asked for to what is shown: request, plan, setup, run, results, display."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Unpack

from zoo.analysis.environment import environment
from zoo.base.errors import ConfigError, OutputExistsError
from zoo.base.files import write_json
from zoo.base.folders import locked
from zoo.building.completion import spell_out
from zoo.building.keywords import TrainingOptions
from zoo.data.tasks.libraries import loading_bars
from zoo.data.tasks.sources import leaks_message
from zoo.data.tasks.tables import Column
from zoo.registry.names import write_value
from zoo.training import Recipe
from zoo.training.progress import overview
from zoo.training.recipe import recipe_for

from .display.documents import write_files
from .files import LOCK, RECIPE, plain
from .plan import ComparisonPlan, find_plan, make_plan
from .request.options import documented, options
from .request.request import Request
from .request.seeds import next_seed, write_values
from .results.comparison import Comparison
from .results.statistics import UNDECIDED
from .results.summary import summarize
from .run.launchers import LAUNCHERS, check_placing
from .run.record import Run, finished, read_run
from .run.search import Choice, chosen_values, recorded, search
from .setup.job import Job
from .setup.jobs import JobMaker
from .setup.shared_inputs import SharedInputs, tokenizers_in

OnRun = Callable[[int, int, str], None]


@dataclass
class Phases:
    """First trials, then runs."""

    plan: ComparisonPlan
    maker: JobMaker
    on_run: OnRun | None
    launched: bool = False  # Whether there was anything to do

    def choices(self) -> dict[str, Choice]:
        """Choose values for every variant by trials; none without a sweep."""
        tried = self.maker.request.tried
        if not tried:
            return {}
        seed, found = self.plan.seeds[0], {}
        searches = {name: search(tried, partial(self.is_valid, name)) for name in self.plan.names}
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

    def is_valid(self, name: str, values: Mapping[str, Any]) -> bool:
        try:
            self.maker.job(name, self.plan.seeds[0], values, trial=True)
        except ConfigError:
            return False
        return True

    def runs(self, names: Sequence[str], seeds: Sequence[int], choices: Mapping[str, Choice]) -> list[Run]:
        """Run variants with every seed, and what was chosen for each."""
        chosen = {name: choices[name].values if name in choices else {} for name in names}
        jobs = {
            (name, seed): self.maker.job(name, seed, values)
            for seed in seeds
            for name, values in chosen.items()
            if values is not None
        }
        failed = {name: choices[name].trials[0].run for name in names if chosen[name] is None}
        reasons = {name: run.error or "the loss is no number" for name, run in failed.items()}
        self.do(list(jobs.values()))
        return [
            read_run(jobs[name, seed])
            if (name, seed) in jobs
            else Run(name, failed[name].folder, seed, error=f"none of the sweep's trials succeeded: {reasons[name]}")
            for name in names
            for seed in seeds
        ]

    def do(self, jobs: Sequence[Job]) -> None:
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
        numbers = count(1)

        def announce(job: Job) -> None:
            if self.on_run is not None:
                self.on_run(next(numbers), len(waiting), job.label)

        request = self.maker.request
        LAUNCHERS[request.launcher](waiting, request.jobs, request.launch_with or {}, announce)


def command(request: Request, names: Sequence[str], seeds: Sequence[int], baseline: str) -> list[str]:
    values: dict[str, Any] = {
        **{name: getattr(request, name) for name in options()},
        "data": request.source.data,
        "heldout": request.source.heldout,
        "seeds": list(seeds) if len(seeds) > 1 else None,
        "seed": seeds[0] if len(seeds) == 1 else None,
        "budget": request.spent,
        "match": None if request.match == "none" else request.match,
        "sweep": [write_values(*item) for item in request.tried.items()],
        "baseline": None if baseline == names[0] else baseline,
        "output_dir": request.folder,
        **kept_recipe(request),
    }
    words = ["zoo", "compare", *names]
    for name, option in options().items():
        if option.kind == "flag" and values[name]:
            words.append(str(option.flag))
        elif option.flag is not None and option.repeats:
            words += [word for text in texts(values[name], option.kind) for word in (option.short or option.flag, text)]
    return words


def kept_recipe(request: Request) -> dict[str, Any]:
    """Write a recipe that no file holds into the comparison's folder, and name it in place of its source."""
    tokenizer = request.tokenizer if isinstance(request.tokenizer, Mapping) else None
    if not (isinstance(request.recipe, Recipe) or tokenizer is not None or request.generation):
        return {}
    whole = recipe_for(request.task, request.recipe, request.names[0]).changed(
        tokenizer=tokenizer, generation=request.generation
    )
    file = write_json(request.folder / RECIPE, plain(asdict(whole)))
    return {"task": None, "recipe": file, "tokenizer": None if tokenizer is not None else request.tokenizer}


def texts(value: Any, kind: str) -> Iterator[str]:
    """Write a value as the arguments of its flag, one for each time that it is given."""
    if isinstance(value, Mapping):
        yield from (f"{key}={write_value(one)}" for key, one in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from map(str, value) if kind == "values" else [",".join(map(str, value))]
    elif value is not None and kind != "flag":
        yield str(value)


@documented(
    progress="Whether to show progress bars; several runs at a time show none.",
    on_run="Called before every run with its number from 1, the number of runs to do, and what it is called.",
    tell="Called with sentences about what was chosen.",
)
def compare(
    names: Iterable[str],
    task: str | None = None,
    *,
    data: str | Path | None = None,
    heldout: str | Path | None = None,
    columns: Sequence[Column] | None = None,
    recipe: str | Path | Recipe | None = None,
    tokenizer: str | Path | Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    generation: Mapping[str, Any] | None = None,
    seeds: int | str | Iterable[int] = 1,
    seed: int | None = None,
    decide: bool = False,
    margin: float | None = None,
    score: str | None = None,
    most_seeds: int | None = None,
    budget: str | Mapping[str, float] | None = None,
    match: str = "none",
    match_by: str | None = None,
    match_to: str | None = None,
    sweep: str | Iterable[str] | Mapping[str, Sequence[Any]] | None = None,
    baseline: str | None = None,
    jobs: int = 1,
    launcher: str = "local",
    launch_with: Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    progress: bool = True,
    on_run: OnRun | None = None,
    tell: Callable[[str], None] | None = None,
    **arguments: Unpack[TrainingOptions],
) -> Comparison:
    """Train variants with the same seeds, data and budget, and compare their results.

    Each run, a variant with a seed, happens in its own process; its model is saved, and loaded again through
    transformers' Auto class in another process. A run that fails does not stop the others. Runs that are finished are
    not repeated, an interrupted one goes on from its last checkpoint, and more variants or seeds extend what is in the
    folder.

    Returns:
        The results, which are in results.json as well.

    Raises:
        ZooError: When a name is unknown, data cannot be used, a match is impossible, or the folder holds another
            comparison, before anything is trained.
    """
    training = plain(TrainingOptions(**arguments))  # editors complete training options by this call
    given = {**locals(), "arguments": training}
    given["names"] = [names] if isinstance(names, str) else list(names)
    request = Request(**{name: given[name] for name in options()})
    began = time.perf_counter()
    request.check()
    check_placing(launcher, jobs, launch_with or {})
    shows = progress and jobs == 1 and launcher == "local"
    tell = tell or (lambda sentence: None)
    with locked(request.folder / LOCK, wait=False) as ours:
        if not ours:
            raise OutputExistsError(f"another command is busy with {request.folder}; wait for its end")
        request, plan, inputs = set_up(request, shows, tell)
        maker = JobMaker(inputs, request, request.match_to or plan.baseline, shows, tell)
        phases = Phases(plan, maker, on_run)
        choices = phases.choices()
        runs = phases.runs(plan.names, plan.seeds, choices)
        comparison = results_of(request, plan, inputs, choices, runs)
        if request.decide:
            comparison = with_more_seeds(comparison, lambda names, seed: phases.runs(names, [seed], choices), tell)
        dates = (run.circumstances.get("date", "") for run in comparison.runs)
        comparison = replace(comparison, date=max(dates, default=""))
        if not phases.launched and (written := already_written(comparison)) is not None:
            return written
        if phases.launched:
            plan = replace(plan, seconds=plan.seconds + time.perf_counter() - began)
            comparison = replace(comparison, seconds=plan.seconds)
        plan.write(inputs.folder)
        comparison.write()
        write_files(comparison)
        return Comparison.read(inputs.folder)


spell_out(compare, TrainingOptions)


def set_up(
    request: Request, progress: bool, tell: Callable[[str], None]
) -> tuple[Request, ComparisonPlan, SharedInputs]:
    """Load data and tokenizers of all runs, and extend the plan in the folder; the request gets its whole sweep."""
    chosen, folder = request.chosen, request.folder
    task = chosen.data_task()
    with loading_bars(shown=progress):
        splits = task.load_from(request.source)
    plan = make_plan(folder, request.common(splits), request.names, request.all_seeds, request.baseline)
    more = [name for name in plan.names if name not in request.names]
    more += [f"seed {seed}" for seed in plan.seeds if seed not in request.all_seeds]
    more += [f"{name}={value}" for name in plan.sweep for value in plan.sweep[name] if value not in request.tried[name]]
    if more:
        tell(f"{folder} is extended; it holds {', '.join(more)} as well")
    task = task.fitted(splits)
    tokenizers = tokenizers_in(folder, task, splits, chosen, begun=find_plan(folder) is not None)
    splits = task.prepare(splits, tokenizers, progress=progress)
    if splits.duplicates:
        tell(leaks_message(splits))
    return replace(request, sweep=plan.sweep or None), plan, SharedInputs(chosen, task, splits, tokenizers, folder)


def results_of(
    request: Request, plan: ComparisonPlan, inputs: SharedInputs, choices: Mapping[str, Choice], runs: list[Run]
) -> Comparison:
    task, heldout = inputs.task, inputs.splits.heldout
    return Comparison(
        task=task.name,
        names=plan.names,
        baseline=plan.baseline,
        seeds=plan.seeds,
        budget=None if request.spent is None else {request.spent.kind: request.spent.amount},
        match=request.match,
        sweep=recorded(choices, request.tried, plan.seeds[0]) if request.tried else None,
        main_score=task.main_score if request.suite is None else request.suite.name,
        recipe=asdict(inputs.recipe),
        environment=environment(),
        command=command(request, plan.names, plan.seeds, plan.baseline),
        sources=task.sources(heldout),
        references=task.references(heldout),
        runs=runs,
        folder=inputs.folder,
        seconds=plan.seconds,
        match_to=request.match_to,
        data=plan.common["data"],
        design=request.design,
        data_settings=inputs.data_settings(plan.names[0]),
    )


def with_more_seeds(
    comparison: Comparison, run: Callable[[Sequence[str], int], list[Run]], tell: Callable[[str], None]
) -> Comparison:
    """Add seeds to variants that are undecided, until all are decided or the limit is reached."""
    while True:
        summary = summarize(comparison)
        undecided = [row.name for row in summary.rows if row.verdict == UNDECIDED]
        limit = summary.design.limit
        if not undecided or limit is None or len(comparison.seeds) >= limit:
            return comparison
        seed = next_seed(comparison.seeds)
        tell(f"{len(undecided)} of {len(summary.rows) - 1} variants are undecided: {', '.join(undecided)}; seed {seed}")
        added = run([comparison.baseline, *undecided], seed)
        runs = sorted([*comparison.runs, *added], key=lambda one: comparison.names.index(one.name))
        comparison = replace(comparison, runs=runs, seeds=[*comparison.seeds, seed])


def already_written(comparison: Comparison) -> Comparison | None:
    """The results in the folder if nothing was run and they are the same; else None."""
    try:
        written = Comparison.read(comparison.folder)
    except ConfigError:
        return None
    same = ("names", "baseline", "seeds", "runs", "command")
    return written if all(getattr(written, name) == getattr(comparison, name) for name in same) else None
