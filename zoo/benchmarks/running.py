"""Running a benchmark: a comparison a condition, one variant after the other, each recorded as soon as it is there."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path

from zoo.comparison import Comparison, Run, compare
from zoo.comparison.files import CHECKPOINT, read_json, write_json
from zoo.environment import version_of
from zoo.errors import ConfigError, UnknownNameError, ZooError
from zoo.evaluating import evaluate
from zoo.tasks import DataSource, find_task

from .definition import Benchmark, find_benchmark
from .judging import columns_of_run
from .names import expand
from .rows import SHIPPED, Row, read_rows, record

TESTS = "tests.json"
"""The scores of a run on other examples, in its folder."""

Tell = Callable[[str], None]


@dataclass
class Session:
    """One command that runs a benchmark.

    Attributes:
        benchmark: The benchmark.
        folder: Where its comparisons go.
        data: The text that was brought, None where it ships.
        file: Where rows are recorded, None for nowhere.
        jobs: Runs at a time.
        progress: Whether to show progress bars.
        tell: Takes sentences about what happens.
        rows: What has come out.
    """

    benchmark: Benchmark
    folder: Path
    data: Path | None
    file: Path | None
    jobs: int
    progress: bool
    tell: Tell
    rows: list[Row] = field(default_factory=list)

    @cached_property
    def called(self) -> str:
        """What the data are called in rows."""
        return SHIPPED if self.data is None else hashlib.sha256(self.data.read_bytes()).hexdigest()

    def run(self, condition: str, names: Sequence[str], seeds: Sequence[int]) -> None:
        """Run variants under a condition. Where rows are recorded, those that are there are not made again.

        Args:
            condition: Which one.
            names: The variants, the baseline first, since the others are made equal to it.
            seeds: The seeds.
        """
        there = {row.key: row for row in (read_rows(self.file) if self.file else ())}
        keys = {name: [self.key(condition, name, seed) for seed in seeds] for name in names}
        missing = [name for name in names if any(key not in there for key in keys[name])]
        if missing and names[0] not in missing:
            missing = [names[0], *missing]
        # Recorded as soon as they are there, one variant at a time; else all at once, which is quicker.
        for together in [[name] for name in missing] if self.file else [missing] if missing else []:
            rows = self.compared(condition, together, seeds, required=names[0] in together)
            if self.file:
                record(self.file, [row for row in rows if row.key not in there])
            there |= {row.key: row for row in rows if row.key not in there}
        self.rows += [there[key] for name in names for key in keys[name]]

    def key(self, condition: str, name: str, seed: int) -> tuple[int, str, str, int, str]:
        """What a row is found by.

        Args:
            condition: The condition.
            name: The variant.
            seed: The seed.

        Returns:
            The row's `key`.
        """
        return Row(self.benchmark.version, condition, name, seed, self.called).key

    def compared(self, condition: str, names: Sequence[str], seeds: Sequence[int], *, required: bool) -> list[Row]:
        """Compare variants.

        Args:
            condition: Under which condition.
            names: The variants.
            seeds: The seeds.
            required: Whether nothing can go on without them.

        Returns:
            A row a run; where a variant is refused, rows that say why.
        """
        arguments = self.benchmark.arguments(condition)
        task, training, data = arguments.pop("task"), arguments.pop("arguments", {}), arguments.pop("data", None)
        try:
            found = compare(
                names,
                task,
                data=self.data if self.data is not None else data,
                seeds=seeds,
                jobs=self.jobs,
                output_dir=self.folder / (condition or "all"),
                progress=self.progress,
                on_run=lambda number, total, label: self.tell(f"[{number}/{total}] {label}"),
                **arguments,
                **training,
            )
        except ZooError as error:
            if required:
                raise
            self.tell(f"{', '.join(names)}: {error}")
            failed = [Run(name, "", seed, error=str(error)) for name in names for seed in seeds]
            return [self.row(condition, run, None) for run in failed]
        runs = [run for name in names for run in found.runs_of(name) if run.seed in seeds]
        return [self.row(condition, run, found) for run in runs]

    def row(self, condition: str, run: Run, found: Comparison | None) -> Row:
        """Make a row of a run.

        Args:
            condition: Under which it was made.
            run: The run.
            found: The comparison that it belongs to, None where it never began.

        Returns:
            The row.
        """
        values = columns_of_run(run)
        if found is not None and run.report is not None:
            values |= self.test(condition, run, found.folder / run.folder)
        return Row(
            version=self.benchmark.version,
            condition=condition,
            variant=run.name,
            seed=run.seed,
            data=self.called,
            settings=run.settings,
            values=values,
            error=" ".join((run.error or "").split()),
            digest=run.hash,
            zoo=version_of("transformer-zoo") or "",
            torch=version_of("torch") or "",
            transformers=version_of("transformers") or "",
            python=platform.python_version(),
            machine=machine(),
            threads=threads(self.jobs),
            load=round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0,
            date=date.today().isoformat(),
        )

    def test(self, condition: str, run: Run, folder: Path) -> dict[str, float]:
        """Score a model on examples of other tasks, once.

        Args:
            condition: Under which it was trained.
            run: Its run.
            folder: The run's folder.

        Returns:
            The main score and the loss of every test, as "exact_match@twice"; those that the model cannot read, for
            instance because they are longer than its positions, are left out.
        """
        kept = read_json(folder / TESTS)
        if isinstance(kept, dict) and kept.pop("digest", None) == run.hash and set(kept) == set(self.benchmark.tests):
            return {f"{column}@{test}": value for test, values in kept.items() for column, value in values.items()}
        found: dict[str, dict[str, float]] = {}
        trained = self.benchmark.task(condition).name
        for test, pattern in self.benchmark.tests.items():
            name = pattern.format(task=trained)
            task = find_task(name)
            examples = task.load_from(DataSource.of(self.data, None, None, 0)).heldout
            try:
                evaluation = evaluate(folder / CHECKPOINT, name, data=examples, n_bootstrap=1)
            except ZooError as error:
                self.tell(f"{run.label}, {test}: {error}")
                found[test] = {}
            else:
                found[test] = {"heldout_loss": evaluation.loss}
                if self.benchmark.score in evaluation.scores:
                    found[test][self.benchmark.score] = evaluation.scores[self.benchmark.score].value
        if found:
            write_json(folder / TESTS, {"digest": run.hash, **found})
        return {f"{column}@{test}": value for test, values in found.items() for column, value in values.items()}


def bench(
    benchmark: str | Benchmark,
    variants: str | Iterable[str] | None = None,
    *,
    data: str | Path | None = None,
    conditions: Iterable[str] | None = None,
    seeds: int | None = None,
    quick: bool = False,
    record: bool = False,
    output_dir: str | Path | None = None,
    jobs: int = 1,
    progress: bool = True,
    tell: Tell | None = None,
) -> list[Row]:
    """Run a benchmark, or some of it. What is finished is not repeated, and what was interrupted goes on.

    Args:
        benchmark: A benchmark, or the name of one.
        variants: Names or patterns; by default all of the benchmark's. Its baseline is run in any case, since the
            others are made equal to it and measured against it.
        data: The text, where the benchmark wants one that does not ship.
        conditions: Which of its conditions; by default all.
        seeds: How many seeds; by default the benchmark's.
        quick: Whether to run the version that takes less than two minutes and says nothing but that it runs.
        record: Whether to write the rows into the benchmark's CSV file; those that are there are not made again.
        output_dir: Where models and results go; by default "outputs/bench/NAME".
        jobs: Runs at a time.
        progress: Whether to show progress bars.
        tell: Takes sentences about what happens.

    Returns:
        A row a run.

    Raises:
        ZooError: When a name is unknown, a variant cannot do the task, the text is missing, or the short version is to
            be recorded.
    """
    found = find_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
    if quick and record:
        raise ConfigError("quick and record were given; what the short version gives is no result")
    if data is None and found.text is not None and not quick:
        raise ConfigError(
            f"benchmark {found.name!r} needs a text of yours (--data): {found.text.name}, from {found.text.source}"
        )
    if data is not None and found.text is None:
        raise ConfigError(f"benchmark {found.name!r} has data of its own; leave data={str(data)!r} out")
    chosen = found.shortened() if quick else found
    say = tell or (lambda sentence: None)
    session = Session(
        benchmark=chosen,
        folder=Path(output_dir or Path("outputs") / "bench" / (f"{found.name}-quick" if quick else found.name)),
        data=None if data is None else Path(data),
        file=found.results if record else None,
        jobs=jobs,
        progress=progress,
        tell=say,
    )
    if found.text is not None and data is not None and session.called != found.text.sha256:
        say(f"{data} is not {found.text.name} (SHA-256 {found.text.sha256}); its rows are kept apart, as other data")
    wanted = list(conditions) if conditions is not None else list(chosen.conditions)
    for condition in wanted:
        chosen.arguments(condition)  # refuses unknown ones before anything is run
    for condition in wanted:
        session.run(condition, names_to_run(chosen, variants, condition), list(range(seeds or chosen.seeds)))
    return session.rows


def names_to_run(benchmark: Benchmark, variants: str | Iterable[str] | None, condition: str) -> list[str]:
    """List the variants to run.

    Args:
        benchmark: The benchmark.
        variants: What was asked for; None for all.
        condition: Which condition.

    Returns:
        The baseline, and the others.

    Raises:
        ZooError: When a variant is unknown, or cannot do the task.
    """
    task = benchmark.task(condition)
    if isinstance(variants, str):
        variants = [variants]
    known = benchmark.names(condition)
    asked = known if variants is None else expand(variants, task)
    if not asked:
        raise UnknownNameError(", ".join(variants or ()), known, kind="variant")
    for name in asked:
        task.check_variant(name)
    baseline = known[0]
    return [baseline, *(name for name in asked if name != baseline)]


def machine() -> str:
    """Name what computes.

    Returns:
        The accelerator's name, or the processor's.
    """
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            models = [line.partition(":")[2].strip() for line in stream if line.startswith("model name")]
    except OSError:
        models = []
    return models[0] if models else platform.processor() or platform.machine()


def threads(jobs: int) -> int:
    """How many threads each of several runs at a time has.

    Args:
        jobs: How many there are at a time.

    Returns:
        The threads of torch, or each run's share of the processors.
    """
    import torch

    return torch.get_num_threads() if jobs == 1 else max(1, (os.cpu_count() or 1) // jobs)
