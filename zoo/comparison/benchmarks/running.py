"""Running a benchmark: a comparison a condition, one variant after the other, each recorded as soon as it is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from zoo.analysis.environment import circumstances
from zoo.base.errors import ConfigError, InputError, UnknownNameError, UnsupportedTaskError, ZooError
from zoo.base.files import check_writable, read_mapping, write_json
from zoo.comparison import Comparison, Run, compare
from zoo.comparison.files import CHECKPOINT
from zoo.comparison.request.seeds import DATA_SEED, MOST_SEEDS, enough_seeds, read_seeds
from zoo.comparison.results.statistics import UNDECIDED
from zoo.comparison.run.launchers import check_placing
from zoo.data.tasks import DataSource, find_task
from zoo.training.arguments import DECAYS
from zoo.training.evaluate import evaluate
from zoo.training.recipe import recipe_for

from ..files import content_hash
from ..request.seeds import model_fields, read_sweep
from .definition import Benchmark, expand, find_benchmark
from .judging import columns_of_run, judge
from .rows import DECAYED, Row, name_of_data, read_rows, record
from .timing import timed

TESTS = "tests.json"  # The scores of a run on other tasks, in its folder

FULL_PRECISION = {"bf16": False, "tf32": False}
"""Training arguments with which a GPU computes in float32, as processors do: rows of both can be compared."""


Tell = Callable[[str], None]
Chosen = Mapping[str, Any] | None  # Values that a sweep has chosen, None before it has


@dataclass
class BenchmarkRun:
    """One command that runs a benchmark."""

    benchmark: Benchmark
    folder: Path  # Where its comparisons go
    data: Path | None  # The text that was brought, None where it ships
    file: Path | None  # Where rows are recorded, None for nowhere
    # Where runs happen, and how many at a time: `jobs`, `launcher` and `launch_with` of `zoo.compare`
    placing: Mapping[str, Any]
    progress: bool  # Whether to show progress bars
    tell: Tell  # Takes sentences about what happens
    rows: list[Row] = field(default_factory=list)  # The results

    @cached_property
    def called(self) -> str:
        """Name of the data in rows."""
        return name_of_data(self.data)

    def run(self, condition: str, names: Sequence[str], seeds: Sequence[int]) -> None:
        """Run variants under a condition. Where rows are recorded, existing ones are not made again."""
        there = {row.key: row for row in self.recorded()}
        keys = {name: [self.key(condition, name, seed) for seed in seeds] for name in names}
        missing: dict[tuple[int, ...], list[str]] = {}
        for name in names:
            if own := tuple(seed for seed, key in zip(seeds, keys[name], strict=True) if key not in there):
                missing.setdefault(own, []).append(name)
        if complete := len(names) - sum(map(len, missing.values())):
            self.tell(f"{complete} of {len(names)} variants are recorded, and not run again")
        # Where runs happen one after the other, a variant is recorded as soon as it is there; else all at once.
        is_transferred = condition in self.benchmark.rates
        is_swept = bool(self.benchmark.arguments(condition).get("sweep"))
        for left, alike in missing.items():
            is_added = len(left) < len(seeds)
            by_choice = is_transferred or (is_added and is_swept)
            one_by_one = by_choice or (self.file and self.placing["jobs"] == 1 and not self.benchmark.timed)
            for together in [[name] for name in alike] if one_by_one else [alike]:
                # Added seeds have a folder of their own: a comparison that goes on gives all of its variants its seeds.
                chosen = self.chosen(condition, together[0]) if by_choice else {} if is_added else None
                rows = self.compared(condition, together, left, baseline=names[0], chosen=chosen)
                if self.file:
                    record(self.file, rows)
                there |= {row.key: row for row in rows}
        self.rows += [there[key] for name in names for key in keys[name]]

    def decide(self, condition: str, names: Sequence[str]) -> None:
        """Give undecided variants, and the baseline, another seed until all are decided or have all seeds."""
        limit = self.benchmark.most_seeds or 0
        while True:
            rows = {row.key: row for row in (*self.recorded(), *self.rows)}
            verdicts = judge(self.benchmark, rows.values(), condition, data=self.called)
            undecided = sorted({one.variant for one in verdicts.standings if one.verdict == UNDECIDED} & {*names})
            free = {name: [n for n in range(limit) if self.key(condition, name, n) not in rows] for name in undecided}
            wanted = {(name, seeds[0]) for name, seeds in free.items() if seeds}
            if not wanted:
                return
            left = ", ".join(name for name, _ in sorted(wanted))
            self.tell(f"{len(wanted)} of {len(names) - 1} variants are undecided: {left}")
            wanted |= {(names[0], seed) for _, seed in wanted if self.key(condition, names[0], seed) not in rows}
            finished = {name: self.row_of(condition, name) for name, _ in wanted}
            chosen = {name: self.swept(row) for name, row in finished.items() if row is not None}
            for seed, values in sorted({(seed, json.dumps(chosen[name])) for name, seed in wanted}):
                alike = [name for name, one in sorted(wanted) if (one, json.dumps(chosen[name])) == (seed, values)]
                added = self.compared(condition, alike, [seed], baseline=names[0], chosen=json.loads(values))
                if self.file:
                    record(self.file, added)
                self.rows += added

    def swept(self, row: Row) -> dict[str, Any]:
        """Values that a sweep has chosen for a variant, by one of its rows."""
        where = self.benchmark.first if row.condition in self.benchmark.rates else row.condition
        sweep = read_sweep(self.benchmark.arguments(where).get("sweep"))
        return {name: row.settings[name] for name in sweep if name in row.settings}

    def chosen(self, condition: str, name: str) -> dict[str, Any] | None:
        """Values that a sweep has chosen: for another seed, by a row of the variant, else by the first condition.

        The first condition's learning rate is multiplied by that of this condition. None where no run of a variant has
        finished, so that it is still to sweep.
        """
        if (own := self.row_of(condition, name)) is not None:
            return self.swept(own)
        if condition not in self.benchmark.rates:
            return None
        first = self.benchmark.first
        row = self.row_of(first, name)
        if row is None or "learning_rate" not in row.settings:
            raise ConfigError(
                f"{name} has no learning rate yet: under {condition!r} it is the one that the sweep under {first!r} "
                f"chooses, times {self.benchmark.rates[condition]:g}; run {first!r} before"
            )
        rate = row.settings["learning_rate"] * self.benchmark.rates[condition]
        return {**self.swept(row), "learning_rate": float(f"{rate:.3g}")}

    def row_of(self, condition: str, name: str) -> Row | None:
        """A row of a variant, recorded or of this command."""
        wanted = (self.benchmark.version, condition, name, self.called)
        fitting = (row for row in (*self.recorded(), *self.rows) if not row.error)
        return next((one for one in fitting if (one.version, one.condition, one.variant, one.data) == wanted), None)

    def recorded(self) -> list[Row]:
        return read_rows(self.file) if self.file else []

    def tried(self, condition: str, name: str, found: Comparison) -> dict[str, list[Any]]:
        """The values that a sweep has tried for a variant, here or in the comparison that chose them."""
        from zoo.comparison.results.fairness import values_tried

        if found.sweep is not None:
            return values_tried(found, name)
        factor = self.benchmark.rates.get(condition)
        row = self.row_of(condition if factor is None else self.benchmark.first, name)
        tried = dict(row.settings.get("tried", {})) if row is not None else {}
        if factor is not None and "learning_rate" in tried:
            tried["learning_rate"] = [float(f"{rate * factor:.3g}") for rate in tried["learning_rate"]]
        return tried

    def key(self, condition: str, name: str, seed: int) -> tuple[int, str, str, int, str]:
        return Row(self.benchmark.version, condition, name, seed, self.called).key

    def compared(
        self, condition: str, names: Sequence[str], seeds: Sequence[int], *, baseline: str, chosen: Chosen = None
    ) -> list[Row]:
        """Compare variants with `baseline`, which they are matched to: one of them, or recorded before.

        `chosen` are values that a sweep has chosen for all of them, None before it has. A refused variant has rows with
        the reason, next to those of the others; without the baseline's runs nothing can go on.
        """
        if self.benchmark.timed:
            return self.timed(condition, names, seeds, baseline)
        arguments = arguments_of(self.benchmark, condition, chosen)
        folder = self.folder / (condition or "all")
        if chosen is not None:
            folder = self.folder / "added" / (condition or "all") / content_hash([names, seeds, chosen])[:8]
        if arguments.get("match", "none") != "none":
            arguments.setdefault("match_to", baseline)
        if self.data is not None:
            arguments["data"] = self.data
        try:
            found = compare(
                names,
                seeds=seeds,
                output_dir=folder,
                progress=self.progress,
                on_run=lambda number, total, label: self.tell(f"[{number}/{total}] {label}"),
                **self.placing,
                **arguments,
            )
        except (ConfigError, InputError) as error:  # others are about folders and data, and no result of a variant
            if len(names) > 1:
                alone = (self.compared(condition, [name], seeds, baseline=baseline, chosen=chosen) for name in names)
                return [row for rows in alone for row in rows]
            (name,) = names
            if name == baseline:
                raise
            self.tell(f"{name}: {error}")
            return [self.row(condition, Run(name, "", seed, error=str(error)), None) for seed in seeds]
        runs = [run for name in names for run in found.runs_of(name) if run.seed in seeds]
        self.check_directions(runs)
        return [self.row(condition, run, found, chosen) for run in runs]

    def timed(self, condition: str, names: Sequence[str], seeds: Sequence[int], baseline: str) -> list[Row]:
        """Time variants next to the baseline, a seed in a process of its own."""
        arguments, rows = self.benchmark.arguments(condition), []
        together = list(dict.fromkeys([baseline, *names]))
        if self.data is not None:
            arguments["data"] = str(self.data)
        for seed in seeds:
            self.tell(f"seed {seed}: {', '.join(together)}")
            folder = self.folder / (condition or "all") / f"seed-{seed}"
            found = timed(together, self.benchmark.timed[condition], arguments, seed, folder)
            digest = content_hash([together, self.benchmark.timed[condition], arguments, seed])
            made = {"digest": digest, **circumstances()}
            rows += [replace(Row(*self.key(condition, name, seed)), **found[name], **made) for name in names]
        return rows

    def decayed(self, condition: str, name: str) -> dict[str, list[str]]:
        """Roles of a variant's parameters that decay, where that is not the same for all variants by definition."""
        from zoo.comparison.results.fairness import decay_groups

        given = self.benchmark.arguments(condition)
        recipe = recipe_for(given["task"], given.get("recipe"))
        arguments = {**recipe.arguments, **read_sweep(given.get("sweep")), **given.get("arguments", {})}
        rule = str(arguments.get("decay", DECAYS[0]))
        if rule == DECAYS[0] or not arguments.get("weight_decay"):
            return {}
        return {DECAYED: sorted(decay_groups(name, recipe.data_task().model_task, rule))}

    def check_directions(self, runs: Iterable[Run]) -> None:
        """Refuse a definition that takes the worse for the better."""
        for name, score in (item for run in runs if run.report is not None for item in run.report["scores"].items()):
            better = 1 if score.get("higher_is_better", True) else -1
            if self.benchmark.better(name) != better:
                raise ConfigError(
                    f"benchmark {self.benchmark.name!r} takes {name!r} for a score where "
                    f"{'less' if better > 0 else 'more'} is better, against its task: see less_is_better"
                )

    def values(self, condition: str, run: Run, folder: Path | None) -> dict[str, float]:
        """Scores and costs of a run, those of the benchmark's tests included; `folder` is that of its comparison."""
        values = columns_of_run(run)
        if folder is None or run.report is None or not self.benchmark.tests:
            return values
        file, tests = folder / run.folder / TESTS, self.benchmark.tests
        kept = read_mapping(file)
        digest = content_hash([run.hash, dict(tests), self.benchmark.task_score])
        if kept.get("digest") != digest:
            model = folder / run.folder / CHECKPOINT
            kept = {"digest": digest, "scores": {test: self.score(condition, test, model) for test in tests}}
            write_json(file, kept)
        tested = {f"{name}@{test}": value for test, found in kept["scores"].items() for name, value in found.items()}
        return values | tested

    def score(self, condition: str, test: str, model: Path) -> Mapping[str, float]:
        """Score a model on one test; nothing where it cannot read the examples."""
        given = self.benchmark.arguments(condition)
        source = DataSource.of(self.data or given.get("data"), given.get("heldout"), given.get("columns"), DATA_SEED)
        name = self.benchmark.tests[test].format(task=self.benchmark.task(condition).name)
        examples = find_task(name).load_from(source).heldout
        try:
            evaluation = evaluate(model, name, data=examples, n_bootstrap=1)
        except ZooError as error:
            self.tell(f"{model.parent}, {test}: {error}")
            return {}
        scores = {key: found.value for key, found in evaluation.scores.items() if key == self.benchmark.task_score}
        return {"heldout_loss": evaluation.loss, **scores}

    def row(self, condition: str, run: Run, found: Comparison | None, chosen: Chosen = None) -> Row:
        """Make a row of a run; `found` is its comparison, None where it never began."""
        folder = None if found is None else found.folder
        tried = {} if found is None else self.tried(condition, run.name, found)
        settings = {**run.settings, **(chosen or {}), **self.decayed(condition, run.name)}
        return Row(
            *self.key(condition, run.name, run.seed),
            settings=settings | ({"tried": tried} if tried else {}),
            values=self.values(condition, run, folder),
            error=" ".join((run.error or "").split()),
            digest=run.hash,
            # A refused variant or a killed process records nothing.
            **(run.circumstances or circumstances()),
        )


def bench(
    benchmark: str | Benchmark,
    variants: str | Iterable[str] | None = None,
    *,
    data: str | Path | None = None,
    conditions: Iterable[str] | None = None,
    seeds: int | None = None,
    quick: bool = False,
    record: bool = False,
    decide: bool = False,
    output_dir: str | Path | None = None,
    jobs: int = 1,
    launcher: str = "local",
    launch_with: Mapping[str, Any] | None = None,
    progress: bool = True,
    tell: Tell | None = None,
) -> list[Row]:
    """Run a benchmark, or some of it. Finished runs are not repeated, and interrupted ones go on.

    Args:
        benchmark: A benchmark, or the name of one.
        variants: Names or patterns; by default all of the benchmark's. Its baseline is run in any case, since the
            others are measured against it.
        data: The text, or the name of a corpus, where the benchmark wants one that does not ship.
        conditions: Which of its conditions; by default all.
        seeds: How many seeds; by default the benchmark's.
        quick: Whether to run the version that takes less than two minutes and shows only that it runs.
        record: Whether to write the rows into the benchmark's CSV file; existing ones are not made again.
        decide: Whether to give undecided variants another seed until they are decided; to be recorded, that takes a
            benchmark that has `most_seeds`.
        output_dir: Where models and results go; by default "outputs/bench/NAME".
        jobs: Runs at a time.
        launcher: Where runs happen: "local", "ray" or "submitit". Each row names the machine.
        launch_with: Options of the launcher's engine.
        progress: Whether to show progress bars.
        tell: Takes sentences about what happens.

    Returns:
        A row a run.

    Raises:
        ZooError: When a name is unknown, a variant cannot do the task, the text is missing, or the short version is to
            be recorded, or rows where nothing can be written.
    """
    found = find_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
    if quick and record:
        raise ConfigError("quick and record were given; what the short version gives is no result")
    if decide and record and found.most_seeds is None:
        raise ConfigError(
            f"decide and record were given, but benchmark {found.name!r} has {found.seeds} seeds for all variants; a "
            "benchmark with most_seeds in its definition can be recorded so"
        )
    chosen = found.shortened() if quick else found
    if decide:
        chosen = deciding(chosen)
    text = chosen.find_text(data)
    check_placing(launcher, jobs, launch_with or {})
    if chosen.timed and (launcher, jobs) != ("local", 1):
        raise ConfigError(f"benchmark {found.name!r} times variants in turns, here: leave launcher and jobs out")
    if record:
        check_writable(found.results.parent)
    announce = tell or (lambda sentence: None)
    folder = Path(output_dir or Path("outputs") / "bench" / (f"{found.name}-quick" if quick else found.name))
    placing = {"jobs": jobs, "launcher": launcher, "launch_with": launch_with}
    session = BenchmarkRun(chosen, folder, text, found.results if record else None, placing, progress, announce)
    if found.text is not None and session.called != found.text.sha256:
        announce(
            f"{text} (SHA-256 {session.called}) is not {found.text.name} (SHA-256 {found.text.sha256}); "
            "its rows are kept apart, as other data"
        )
    listed = read_seeds(chosen.seeds if seeds is None else seeds)
    wanted = list(conditions) if conditions is not None else list(chosen.conditions)
    for condition in wanted:
        chosen.arguments(condition)  # refuses unknown ones before anything is run
    for condition in wanted:
        names = names_to_run(chosen, variants, condition, announce)
        session.run(condition, names, enough_seeds(listed) if decide else listed)
        if decide:
            session.decide(condition, names)
    return session.rows


def arguments_of(benchmark: Benchmark, condition: str, chosen: Chosen) -> dict[str, Any]:
    """Arguments of [`zoo.compare`][] under a condition, with what was `chosen` in place of a sweep, None to sweep."""
    arguments = benchmark.arguments(condition)
    training = {**(FULL_PRECISION if torch.cuda.is_available() else {}), **arguments.pop("arguments", {})}
    if chosen is not None:
        arguments.pop("sweep", None)
        fields = model_fields(chosen)
        arguments["settings"] = {**arguments.get("settings", {}), **fields}
        training |= {name: one for name, one in chosen.items() if name not in fields}
    return {**arguments, **training}


def deciding(benchmark: Benchmark) -> Benchmark:
    """The same benchmark with a limit of seeds, where it has none."""
    return replace(benchmark, most_seeds=benchmark.most_seeds or MOST_SEEDS)


def names_to_run(benchmark: Benchmark, variants: str | Iterable[str] | None, condition: str, tell: Tell) -> list[str]:
    """The baseline and the variants that were asked for, without those that cannot be trained on the task."""
    task = benchmark.task(condition)
    if isinstance(variants, str):
        variants = [variants]
    known = benchmark.names(condition)
    asked = known if variants is None else expand(variants, task)
    if not asked:
        raise UnknownNameError(", ".join(variants or ()), known, kind="variant")
    left_out: dict[str, UnsupportedTaskError] = {}
    for name in asked:
        try:
            task.check_variant(name)
        except UnsupportedTaskError as error:
            left_out[name] = error
    suiting = [name for name in asked if name not in left_out]
    if not suiting:
        raise left_out[asked[0]]
    for name, why in left_out.items():
        tell(f"{name} is left out: {why}")
    return list(dict.fromkeys([known[0], *suiting]))
