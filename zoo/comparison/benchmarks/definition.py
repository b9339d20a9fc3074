"""Definition of benchmarks: comparisons with a name and a version, so that results stay comparable for years."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from zoo.base.errors import ConfigError, UnknownNameError, UnsupportedTaskError, ZooError, raised_as
from zoo.building.settings import describe_setting
from zoo.comparison.request.seeds import FEWEST_SEEDS, MOST_LOOKS, read_budget
from zoo.comparison.results.design import Design
from zoo.comparison.results.metrics import LOSSES
from zoo.data.corpora import is_here, located
from zoo.data.tasks import DataTask, find_task
from zoo.registry import CORPORA, VARIANTS, list_variants, parse_name
from zoo.registry.plugins import BUILT_IN_DISTRIBUTION
from zoo.training.recipe import read_yaml, recipe_for

from .rows import SHIPPED, Row

FOLDER = Path(__file__).parent

CALIBRATION = FOLDER / "calibration.yaml"
"""Signs that others published, with the benchmarks that test them: see `zoo.comparison.benchmarks.claims`."""

NESTED = ("arguments", "settings", "sweep")
"""Arguments of a comparison that are dictionaries: a condition changes single entries, or takes all away (null)."""


ACROSS = ("valley", "power-law", "average", "rank-correlation")
"""Readings over all conditions: see `zoo.comparison.benchmarks.across`."""

TIMED = ("training", "prefill", "decoding")  # Kinds of work that are timed: see `zoo.comparison.benchmarks.timing`
RELATIVE_SPEED = "relative_speed"  # The score that decides where variants are timed: speed in percent of the baseline's


@dataclass(frozen=True)
class Text:
    """A text that does not ship."""

    name: str  # Its name; that of a corpus (`zoo data`) is found without `--data`, once it is downloaded
    # Of the file; of a folder, of the list of its files as sha256sum prints it, sorted by path. Rows of another text
    # are kept apart.
    sha256: str
    source: str  # Where it comes from


@dataclass(frozen=True)
class Anchor:
    """A published number that a row of the benchmark should come near to."""

    variant: str  # Which row
    value: float  # The published number
    source: str  # Where it was published
    # How far from it a mean may be, because of seeds and details missing in the source
    tolerance: float | None = None
    condition: str = ""  # Its condition; of several without a named one, the average over them
    # Number of scores in percent, this one included, that it is the average of; instead of `tolerance`
    averaged_over: int = 1

    @property
    def room(self) -> tuple[float, float]:
        """Range of a score in percent: at the number, or so that the average with the others can reach it."""
        if self.tolerance is not None:
            return self.value, self.value
        total = self.averaged_over * self.value
        return max(0.0, total - 100 * (self.averaged_over - 1)), min(100.0, total)


@dataclass(frozen=True)
class Benchmark:
    """A comparison with a name.

    Attributes:
        name: Its name.
        version: Raised with every change that changes results; rows of other versions are not compared.
        summary: Its question, in a sentence.
        minutes: How long all of it takes on two cores, two runs of one thread at a time: runs x (steps x the time of a
            step + 8 seconds) / 2, with steps timed on the baseline. All that ship come to about 14 hours, without
            those on books.
        compare: Arguments of [`zoo.compare`][]; at least the `task`.
        variants: Names of variants, the baseline first; also patterns: `*` in a name, `pre-norm:position=*` for every
            value of a setting, `d2l-style+*` for each quirk alone, and `!name` for what is left out.
        seeds: How many seeds each gets.
        score: The column that decides: a score of the task or "heldout_loss", of a test as "heldout_loss@2x".
        margin: The largest difference of `score` that counts as none, for the verdict "the same"; None for no such
            verdict.
        most_seeds: The limit up to which `zoo bench run --decide` adds seeds to undecided variants; rows are then read
            by the test that allows it. None where all variants have `seeds`.
        less_is_better: Scores of the task where less is better; losses are known.
        source: Its source.
        conditions: Changes to `compare` by name, each makes its own comparison; also to `variants`.
        rates: Conditions that sweep nothing. The learning rate of each of their variants is the one that the sweep
            under the first condition chose for it, times this factor.
        timed: What each condition times, one of `TIMED`, where variants take turns instead of being trained; the budget
            is the seconds for each variant, and a seed is a repetition in a process of its own.
        across: Reading over all conditions: a `reading`, one of `ACROSS`, and what it needs.
        tests: Tasks by name; each model is scored on their held-out examples as well, though it was not trained on
            them. "{task}" is replaced by the task that it was trained on.
        text: The text that users bring; None where everything ships or is made.
        anchors: Published numbers.
        quick: Changes that make it take less than two minutes; its results show only that it runs.
        notes: Sentences that its page and `zoo bench show` print: rows that were removed, and reasons.
        results: The CSV file of what was recorded: with those that ship, or next to the benchmark's own file.
    """

    name: str
    version: int
    summary: str
    minutes: int
    compare: Mapping[str, Any]
    variants: Sequence[str]
    seeds: int
    score: str
    less_is_better: Sequence[str] = ()
    margin: float | None = None
    most_seeds: int | None = None
    source: str = ""
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    rates: Mapping[str, float] = field(default_factory=dict)
    timed: Mapping[str, str] = field(default_factory=dict)
    across: Mapping[str, Any] = field(default_factory=dict)
    tests: Mapping[str, str] = field(default_factory=dict)
    text: Text | None = None
    anchors: Sequence[Anchor] = ()
    quick: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    results: Path = Path()

    @property
    def design(self) -> Design:
        """How verdicts by `score` are reached."""
        return Design(self.margin, self.most_seeds)

    @property
    def task_score(self) -> str:
        """The score that decides, without the test that it is of."""
        return self.score.partition("@")[0]

    @property
    def data(self) -> str:
        """Name of its data in rows: the digest of the text that it names, or `SHIPPED`."""
        return self.text.sha256 if self.text else SHIPPED

    def comparable(self, rows: Iterable[Row], data: str | None = None) -> list[Row]:
        """Those of recorded rows that are of its version and of these data, by default its own."""
        return [row for row in rows if (row.version, row.data) == (self.version, data or self.data)]

    def task(self, condition: str = "") -> DataTask:
        """Look up the task that is trained on, with its options."""
        arguments = self.arguments(condition)
        return recipe_for(arguments["task"], arguments.get("recipe")).data_task()

    def arguments(self, condition: str) -> dict[str, Any]:
        """Arguments of [`zoo.compare`][] under a condition, one of `conditions`."""
        UnknownNameError.check(condition, valid=self.conditions, kind="condition", owner=f"benchmark {self.name!r}")
        changes = {name: value for name, value in self.conditions[condition].items() if name != "variants"}
        merged = changed(self.compare, changes)
        left_out = ("sweep",) if condition in self.rates else ()
        return {name: value for name, value in merged.items() if value is not None and name not in left_out}

    @property
    def first(self) -> str:
        """The first condition."""
        return next(iter(self.conditions))

    def better(self, column: str) -> int:
        """1 where more of a column, a score or a loss ("heldout_loss@2x"), is better, -1 where less is."""
        name = column.partition("@")[0]
        return -1 if name in self.less_is_better or name in {metric.key for metric in LOSSES} else 1

    def names(self, condition: str = "") -> list[str]:
        """Names of the variants that a condition compares, the baseline first."""
        return expand(self.patterns(condition), self.task(condition))

    def patterns(self, condition: str = "") -> Sequence[str]:
        """List names of variants, and patterns for several, that a condition compares."""
        return self.conditions[condition].get("variants", self.variants)

    def baseline(self, condition: str = "") -> str:
        """Find the variant that the others of a condition are compared with."""
        first = self.patterns(condition)[0]
        return first if first[0] != "!" and "*" not in first else self.names(condition)[0]

    def find_text(self, data: str | Path | None) -> Path | None:
        """Find the text that is trained on: a file, a folder or a corpus, by default the benchmark's.

        None if everything ships or is made. A text that is needed and not found, or given and not needed, is an error.
        """
        if data is not None:
            if self.text is None:
                raise ConfigError(f"benchmark {self.name!r} has its own data; leave data={str(data)!r} out")
            return Path(located(data))
        if self.text is None:
            return None
        corpus = CORPORA.get(self.text.name) if self.text.name in CORPORA else None
        if corpus is not None and is_here(corpus):
            return Path(located(corpus.name))
        download = f"; `zoo data get {corpus.name}` downloads it" if corpus is not None else ""
        raise ConfigError(
            f"benchmark {self.name!r} needs a text of yours (--data): {self.text.name}, "
            f"from {self.text.source}{download}"
        )

    def shortened(self) -> Benchmark:
        """The same benchmark with the changes in `quick`, so that it takes less than two minutes."""
        changes = dict(self.quick)
        compare = changed(self.compare, changes.pop("compare", {}))
        kept = changes.pop("conditions", self.conditions)
        tests = {name: self.tests[name] for name in changes.pop("tests", self.tests)}
        dropped = ("variants", *self.quick.get("compare", {}))
        conditions = {
            name: {key: value for key, value in self.conditions[name].items() if key not in dropped} for name in kept
        }
        return replace(self, compare=compare, conditions=conditions, rates={}, tests=tests, text=None, **changes)


def expand(patterns: Iterable[str], task: DataTask) -> list[str]:
    """Find the variants that a benchmark compares, by names, and by patterns that grow with the zoo.

    *                     every built-in variant that the task can be done with
    pre-norm:position=*   one variant with every value that a setting takes
    d2l-style+*           one variant with each of its quirks alone
    !gpt2-style           not this one, nor what a pattern after the ! matches
    """
    patterns = list(patterns)
    unwanted = {name for pattern in patterns if pattern[:1] == "!" for name in names_of(pattern[1:], task)}
    wanted = (name for pattern in patterns if pattern[:1] != "!" for name in names_of(pattern, task))
    return [name for name in dict.fromkeys(wanted) if name not in unwanted]


def names_of(pattern: str, task: DataTask) -> Iterator[str]:
    if pattern.endswith("=*"):
        start, _, setting = pattern[:-2].replace(",", ":").rpartition(":")
        separator = pattern[len(start)]
        for value in describe_setting(setting).values:
            if value.islower() and can_be_built(name := f"{start}{separator}{setting}={value}", task):
                yield name
    elif pattern.endswith("+*"):
        base = pattern[:-2]
        yield from (f"{base}+{quirk}" for quirk in VARIANTS.get(parse_name(base).name).quirks)
    elif "*" in pattern:
        for name in list_variants(pattern, task=task.model_task):
            if task.suits(name) and VARIANTS.get(name).origin.distribution == BUILT_IN_DISTRIBUTION:
                yield name
    else:
        yield pattern


def can_be_built(name: str, task: DataTask) -> bool:
    from zoo.building.builder import config

    try:
        config(name, task.model_task)
    except UnsupportedTaskError:
        raise
    except ZooError:
        return False
    return True


def changed(compare: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Change arguments of a comparison, single entries of those in `NESTED`."""
    merged = {**compare, **changes}
    for name in NESTED:
        if name in compare and changes.get(name) is not None:
            merged[name] = {**compare[name], **changes[name]}
    return merged


def benchmarks() -> dict[str, Benchmark]:
    """List the benchmarks that ship with the zoo, by name."""
    return {name: read(file) for name, file in shipped().items()}


def shipped() -> dict[str, Path]:
    return {file.stem: file for file in sorted(FOLDER.glob("*.yaml")) if file != CALIBRATION}


def find_benchmark(name: str) -> Benchmark:
    """Find a benchmark.

    Args:
        name: The name of one that ships, or a YAML file.

    Raises:
        UnknownNameError: When the name is unknown.
        ConfigError: When the file is no benchmark.
    """
    if Path(name).suffix in (".yaml", ".yml"):
        return read(Path(name))
    files = shipped()
    UnknownNameError.check(name, valid=files, kind="benchmark")
    return read(files[name])


def read(file: Path) -> Benchmark:
    content = read_yaml(file)
    known = [one.name for one in fields(Benchmark) if one.name not in ("name", "results")]
    results = FOLDER / "results" if file.parent == FOLDER else file.parent
    if not isinstance(content, dict):
        raise ConfigError(f"{file} is no benchmark: it must hold names and values; entries: {', '.join(known)}")
    UnknownNameError.check(*content, valid=known, kind="entry", owner=file)
    with raised_as(ConfigError, lambda error: f"{file} is no benchmark: {error}", TypeError):
        text = Text(**content["text"]) if content.get("text") else None
        anchors = tuple(Anchor(**anchor) for anchor in content.get("anchors", ()))
        made = {"name": file.stem, "text": text, "anchors": anchors, "results": results / f"{file.stem}.csv"}
        found = Benchmark(**{**content, **made})
    check(found, file)
    return found


def check(benchmark: Benchmark, file: Path) -> None:
    """Refuse a definition that contradicts itself."""
    if "task" not in benchmark.compare:
        raise ConfigError(f"{file}: compare names no task")
    check_verdicts(benchmark, file)
    if benchmark.timed or benchmark.score == RELATIVE_SPEED:
        check_timed(benchmark, file)
    check_rates(benchmark, file)
    check_anchors(benchmark, file)
    for condition in benchmark.conditions:
        for test in benchmark.tests.values():
            find_task(test.format(task=benchmark.task(condition).name))
    for entry in ("conditions", "tests"):
        named = benchmark.quick.get(entry, ())
        UnknownNameError.check(*named, valid=getattr(benchmark, entry), kind=entry.rstrip("s"), owner=file)


def check_verdicts(benchmark: Benchmark, file: Path) -> None:
    """Refuse a margin, a limit of seeds or a reading across conditions by which nothing can be decided."""
    if benchmark.margin is not None and not benchmark.margin > 0:
        raise ConfigError(f"{file}: margin is {benchmark.margin}; valid: a difference of {benchmark.score} above 0")
    fewest = max(FEWEST_SEEDS, benchmark.seeds)
    if benchmark.most_seeds is not None and not fewest <= benchmark.most_seeds <= MOST_LOOKS:
        raise ConfigError(f"{file}: most_seeds is {benchmark.most_seeds}; valid: {fewest} to {MOST_LOOKS}")
    if benchmark.across:
        UnknownNameError.check(benchmark.across.get("reading"), valid=ACROSS, kind="reading", owner=file)


def check_rates(benchmark: Benchmark, file: Path) -> None:
    """Refuse learning rates taken from a condition that finds none."""
    for condition in benchmark.rates:
        UnknownNameError.check(condition, valid=benchmark.conditions, kind="condition", owner=f"{file}, rates")
        if condition == benchmark.first or "learning_rate" not in (benchmark.compare.get("sweep") or {}):
            raise ConfigError(
                f"{file}, rates: {condition!r} has no sweep of learning_rate to take a rate from; valid: conditions "
                "after the first one, with a sweep of learning_rate in compare"
            )


def check_anchors(benchmark: Benchmark, file: Path) -> None:
    """Refuse published scores of unknown conditions, and those without one way to judge them."""
    is_averaged = bool(benchmark.across) and benchmark.across["reading"] == "average"
    for anchor in benchmark.anchors:
        if anchor.condition or not is_averaged:
            known, where = benchmark.conditions, f"{file}, anchors"
            UnknownNameError.check(anchor.condition, valid=known, kind="condition", owner=where)
        if anchor.averaged_over < 1 or (anchor.tolerance is None) != (anchor.averaged_over > 1):
            raise ConfigError(
                f"{file}, anchors: tolerance={anchor.tolerance} and averaged_over={anchor.averaged_over} of"
                f" {anchor.value:g}; valid: either a tolerance, or an average over at least 2 scores"
            )


def check_timed(benchmark: Benchmark, file: Path) -> None:
    """Refuse a definition by which speeds cannot be compared."""
    budgets = [read_budget(benchmark.arguments(condition).get("budget")) for condition in benchmark.conditions]
    is_whole = benchmark.score == RELATIVE_SPEED and set(benchmark.timed) == set(benchmark.conditions)
    if not is_whole or not all(budget is not None and budget.kind == "seconds" for budget in budgets):
        raise ConfigError(
            f"{file}: a benchmark of speeds names what every condition times, decides by {RELATIVE_SPEED}, and has a "
            "budget of seconds"
        )
    UnknownNameError.check(*benchmark.timed.values(), valid=TIMED, kind="entry", owner=f"{file}, timed")
