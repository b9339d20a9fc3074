"""The comparison itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

from zoo.environment import environment
from zoo.errors import ConfigError
from zoo.tasks.libraries import loading_bars
from zoo.tasks.tables import Column
from zoo.training import Recipe

from .display.documents import write_files
from .files import locked
from .plan import find_plan, make_plan
from .request.request import Request
from .results.comparison import Comparison
from .run.launchers import LAUNCHERS, check_launcher
from .run.phases import Launch, OnRun, Phases
from .run.trials import told
from .setup.job import Job
from .setup.jobs import JobMaker
from .setup.shared_inputs import SharedInputs, tokenizers_in


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
    seed: int = 0,
    budget: str | Mapping[str, float] | None = None,
    match: str = "none",
    match_by: str | None = None,
    sweep: str | Iterable[str] | Mapping[str, Sequence[Any]] | None = None,
    baseline: str | None = None,
    jobs: int = 1,
    launcher: str = "local",
    launch_with: Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    progress: bool = True,
    on_run: OnRun | None = None,
    tell: Callable[[str], None] | None = None,
    **arguments: Any,
) -> Comparison:
    """Train variants with the same seeds, data and budget, and put their results beside each other.

    Each run, a variant with a seed, happens in a process of its own; its model is saved, and loaded again through
    transformers' Auto class in another process. A run that fails does not stop the others. Runs that are finished are
    not repeated, an interrupted one goes on from its last checkpoint, and more variants or seeds extend what is in the
    folder.

    Args:
        names: Variants' names, possibly with settings: "vanilla", "vanilla+faithful", "pre-norm:position=rotary".
        task: A name in [`zoo.tasks.TASKS`][], possibly with options: "copy:length=20". By default the recipe's, and
            without a recipe "translation".
        data: As for [`zoo.training.train`][], a path.
        heldout: As for [`zoo.training.train`][].
        columns: As for [`zoo.training.train`][].
        recipe: As for [`zoo.training.train`][].
        tokenizer: As for [`zoo.training.train`][]; all variants share it.
        settings: As for [`zoo.training.train`][].
        generation: As for [`zoo.training.train`][].
        seeds: How many seeds, from `seed` on; or which ones: [0, 1, 2] or "0,1,2".
        seed: The first seed, of weights, dropout and the order of the data. Which examples are held out does not
            depend on it.
        budget: How long every run is: "steps=1000", "tokens=2e6", "flops=1e13" or "seconds=60"; by default the
            recipe's.
        match: What is made equal to the baseline's, by other sizes: "none", "params" or "flops", those per token.
        match_by: Which size may change: "width", "intermediate" or "depth"; by default whichever leads to it.
        sweep: Training arguments to be chosen for each variant among a few values: "lr=1e-3,5e-4". Training examples
            that are set aside decide, with the first seed.
        baseline: The variant that the others are measured against, by default the first one.
        jobs: How many runs happen at a time.
        launcher: "local", "ray" or "submitit".
        launch_with: As for `ray.remote`, or for submitit's `update_parameters`.
        output_dir: Where everything goes; by default "outputs/compare-TASK".
        progress: Whether to show progress bars; where several runs happen at a time, there are none.
        on_run: Called before every run with its number from 1, the number of runs to do, and what it is called.
        tell: Called with sentences about what was chosen.
        arguments: Fields of transformers' `Seq2SeqTrainingArguments`.

    Returns:
        The results, which are in results.json as well.

    Raises:
        ZooError: When a name is unknown, data cannot be used, a match is impossible, or the folder holds another
            comparison, before anything is trained.
    """
    began = time.perf_counter()
    request = Request(
        names=[names] if isinstance(names, str) else list(names),
        task=task,
        data=data,
        heldout=heldout,
        columns=columns,
        recipe=recipe,
        tokenizer=tokenizer,
        settings=settings,
        generation=generation,
        seeds=seeds,
        seed=seed,
        budget=budget,
        match=match,
        match_by=match_by,
        sweep=sweep,
        baseline=baseline,
        output_dir=output_dir,
        arguments=arguments,
    )
    request.check()
    check_launcher(launcher)
    if jobs < 1:
        raise ConfigError(f"jobs={jobs} was given; at least one run must happen at a time")

    def launch(waiting: Sequence[Job], announce: Callable[[Job], None]) -> None:
        LAUNCHERS[launcher](waiting, jobs, launch_with or {}, announce)

    shows = progress and jobs == 1 and launcher == "local"
    with locked(request.folder, wait=False) as ours:
        if not ours:
            raise ConfigError(f"another command is busy with {request.folder}; wait for its end")
        return carry_out(request, launch, began, shows, on_run, tell or (lambda sentence: None))


def carry_out(
    request: Request,
    launch: Launch,
    began: float,
    progress: bool,
    on_run: OnRun | None,
    tell: Callable[[str], None],
) -> Comparison:
    """Do what is left to be done of a comparison.

    Args:
        request: What is asked for.
        launch: Does runs.
        began: When the command began.
        progress: Whether runs show progress bars.
        on_run: As for [`compare`][].
        tell: As for [`compare`][].

    Returns:
        The results.
    """
    chosen, folder = request.chosen, request.folder
    task = chosen.data_task()
    source = request.source
    with loading_bars(shown=progress):
        splits = task.load_from(source)
    plan = make_plan(folder, request.common(splits), request.names, request.all_seeds, request.baseline)
    more = [name for name in plan.names if name not in request.names]
    more += [f"seed {seed}" for seed in plan.seeds if seed not in request.all_seeds]
    if more:
        tell(f"{folder} is extended; it holds {', '.join(more)} as well")
    task = task.fitted(splits)
    begun = find_plan(folder) is not None
    tokenizers = tokenizers_in(folder, task, splits, chosen, begun=begun)
    ground = SharedInputs(chosen, task, splits, tokenizers, folder)
    maker = JobMaker(
        ground=ground,
        baseline=plan.baseline,
        budget=request.spent,
        matching=request.match,
        match_by=request.match_by,
        explicit=list(request.arguments),
        tell=tell,
        data={"data": source.data, "heldout": source.heldout, "columns": source.columns, "progress": progress},
    )
    phases = Phases(plan, maker, request.tried, launch, on_run)
    trials = phases.trials()
    runs = phases.runs(trials)
    if phases.launched:
        plan = replace(plan, seconds=plan.seconds + time.perf_counter() - began)
    comparison = Comparison(
        task=task.name,
        names=plan.names,
        baseline=plan.baseline,
        seeds=plan.seeds,
        budget=None if request.spent is None else {request.spent.kind: request.spent.amount},
        match=request.match,
        sweep=told(trials, request.tried, plan.seeds[0]) if request.tried else None,
        main_score=task.main_score,
        recipe=asdict(chosen),
        environment=environment(),
        command=request.command(plan),
        sources=task.sources(splits.heldout),
        references=task.references(splits.heldout),
        runs=runs,
        folder=folder,
        seconds=plan.seconds,
        date=date.today().isoformat(),
    )
    if not phases.launched and (written := already_written(comparison)) is not None:
        return written
    plan.write(folder)
    comparison.write()
    write_files(comparison)
    return Comparison.read(folder)


def already_written(comparison: Comparison) -> Comparison | None:
    """Find out whether there is nothing to be written.

    Args:
        comparison: A comparison for which nothing was run.

    Returns:
        What its folder holds, where that says the same; else None.
    """
    try:
        written = Comparison.read(comparison.folder)
    except ConfigError:
        return None
    same = ("names", "baseline", "seeds", "runs", "command")
    return written if all(getattr(written, name) == getattr(comparison, name) for name in same) else None
