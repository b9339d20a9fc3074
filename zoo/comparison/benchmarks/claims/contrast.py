"""The smallest comparison that could refute a claim: one variant against another, over a benchmark's recorded rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from zoo.base.errors import ConfigError, InvalidChoiceError, UnknownNameError, raised_as
from zoo.comparison.results.metrics import COSTS, LOSSES
from zoo.registry import VARIANTS, parse_name
from zoo.training.recipe import read_yaml

from ...results.design import Scores, mean_of
from ..definition import RELATIVE_SPEED, Benchmark, benchmarks
from ..judging import edges
from ..rows import Row

FOLDER = Path(__file__).parent

Known = Mapping[str, Benchmark]  # Benchmarks by name
Recorded = Mapping[str, Sequence[Row]]  # Rows by the benchmark's name


@dataclass(frozen=True)
class Claim:
    """Claim of a paper about a variant or a part.

    Attributes:
        claim: The claim, as a sentence.
        source: Who claims it, and where.
        about: Names of variants, and settings such as "norm=dyt"; in a file by default the variants of its tests.
        tests: Results that must all come out if it holds here; each could refute it.
        name: Its name.
        theme: Its theme: the name of its file.
    """

    claim: str
    source: str
    about: Sequence[str]
    tests: Sequence[Contrast]
    name: str = ""
    theme: str = ""


def themes(folder: Path = FOLDER) -> list[str]:
    """Names of the themes of claims, each a YAML file."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def read_claims(folder: Path = FOLDER, known: Known | None = None) -> list[Claim]:
    """Read all claims.

    Args:
        folder: A folder of YAML files, one a theme, which name claims; by default those that ship.
        known: The benchmarks that they may be about, by default those that ship.

    Raises:
        ZooError: When something is missing, unknown, or empty.
    """
    known = benchmarks() if known is None else known
    found: dict[str, Claim] = {}
    for file in (folder / f"{theme}.yaml" for theme in themes(folder)):
        for name, content in entries(file).items():
            if name in found:
                raise ConfigError(f"{file}: the claim {name!r} is in {found[name].theme}.yaml, too")
            found[name] = read_claim(file, name, content, known)
    return list(found.values())


def read_claim(file: Path, name: str, content: object, known: Known) -> Claim:
    where = f"{file}, {name}"
    if isinstance(content, dict) and isinstance(listed := content.get("tests"), list):
        named = (test.get(side) for test in listed if isinstance(test, dict) for side in ("variant", "baseline"))
        content = {"about": list(dict.fromkeys(filter(None, named))), **content}
    claim = made(Claim, content, where)
    if not (isinstance(claim.tests, list) and claim.tests and isinstance(claim.about, list) and claim.about):
        raise ConfigError(f"{where}: about and tests are lists, and neither may be empty")
    tests = [read_contrast(one, f"{where}, test {number}", known) for number, one in enumerate(claim.tests, 1)]
    return replace(claim, tests=tests, name=name, theme=file.stem)


T = TypeVar("T")

DIRECTIONS = {"higher": 1, "lower": -1, "no lower": 1, "no higher": -1, "same": 1}
"""Expectations of a variant against the baseline, and whether a higher score supports each."""

WITHIN = ("no lower", "no higher", "same")
"""Expectations that need a margin: how much lower or higher counts as nothing."""

MARGIN = f"a margin above 0 belongs to {', '.join(map(repr, WITHIN))}, and to nothing else"

SPEEDS = [RELATIVE_SPEED, *(cost.key for cost in COSTS if cost.group == "Speed")]


@dataclass(frozen=True)
class Contrast:
    """A comparison over recorded rows, seed by seed.

    Attributes:
        benchmark: The benchmark's name.
        variant: The variant's name.
        expect: Claim about its score: one of `DIRECTIONS`.
        baseline: The variant that it is compared with; by default itself, under other conditions or by another score.
        conditions: Under which conditions; by default all. Of several, the mean counts.
        baseline_conditions: Those of the baseline, by default the same.
        score: The column, by default the benchmark's.
        baseline_score: The baseline's column, by default the same.
        margin: Difference that counts as none, in units of the score, for "no lower", "no higher" and "same".
    """

    benchmark: str
    variant: str
    expect: str
    baseline: str = ""
    conditions: Sequence[str] = ()
    baseline_conditions: Sequence[str] = ()
    score: str = ""
    baseline_score: str = ""
    margin: float = 0.0

    @property
    def direction(self) -> int:
        """1 where more of the score speaks for the claim, -1 where less does."""
        return DIRECTIONS[self.expect]

    @property
    def sides(self) -> tuple[tuple[str, Sequence[str], str], tuple[str, Sequence[str], str]]:
        """Name, conditions and column of the variant and of the baseline."""
        return (self.variant, self.conditions, self.score), (
            self.baseline or self.variant,
            self.baseline_conditions or self.conditions,
            self.baseline_score or self.score,
        )

    def scores(self, benchmark: Benchmark, rows: Iterable[Row]) -> tuple[Scores, Scores]:
        """The variant's and the baseline's scores by seed; empty where a side is not recorded."""
        variant, baseline = (scores_of(benchmark, benchmark.comparable(rows), *side) for side in self.sides)
        return variant, baseline

    def edges(self, benchmark: Benchmark, rows: Iterable[Row]) -> str:
        """Name swept arguments with a best value, on either side, at the edge of what was tried; empty for none."""
        found = {
            f"{name} of {variant}"
            for variant, conditions, _ in self.sides
            for row in benchmark.comparable(rows)
            if row.variant == variant and row.condition in (conditions or benchmark.conditions)
            for name in edges(benchmark, row)
        }
        return ", ".join(sorted(found))

    def seconds(self, benchmark: Benchmark, rows: Iterable[Row]) -> float:
        """How long both sides train with one seed, by what was recorded; models that are on both sides count once."""
        trained = {
            (variant, condition)
            for variant, conditions, _ in self.sides
            for condition in conditions or benchmark.conditions
        }
        times: dict[tuple[str, str], list[float]] = {}
        for row in benchmark.comparable(rows):
            if (row.variant, row.condition) in trained and "train_seconds" in row.values:
                times.setdefault((row.variant, row.condition), []).append(row.values["train_seconds"])
        return math.fsum(math.fsum(one) / len(one) for one in times.values())


def scores_of(
    benchmark: Benchmark, rows: Sequence[Row], variant: str, conditions: Sequence[str], score: str
) -> dict[int, float | None]:
    """Find a variant's score by seed, None for a run that is lost; speeds of a busy machine are left out."""
    found: list[dict[int, float | None]] = [
        {
            row.seed: row.number(score)
            for row in rows
            if (row.variant, row.condition) == (variant, condition) and not (score in SPEEDS and row.was_busy)
        }
        for condition in conditions or benchmark.conditions
    ]
    seeds = sorted(set.intersection(*map(set, found)))
    return {seed: mean_of([one[seed] for one in found]) for seed in seeds}


def read_contrast(content: Any, where: str, benchmarks: Known) -> Contrast:
    contrast = made(Contrast, content, where)
    UnknownNameError.check(contrast.benchmark, valid=benchmarks, kind="benchmark", owner=where)
    InvalidChoiceError.check(contrast.expect, valid=DIRECTIONS, kind="expectation", owner=where)
    lists = (contrast.conditions, contrast.baseline_conditions)
    if not all(isinstance(one, (list, tuple)) for one in lists) or not isinstance(contrast.margin, (int, float)):
        raise ConfigError(f"{where}: conditions are lists of names, and a margin is a number")
    benchmark = benchmarks[contrast.benchmark]
    contrast = replace(contrast, score=contrast.score or benchmark.score)
    for variant, conditions, score in contrast.sides:
        VARIANTS.get(parse_name(variant).name)
        UnknownNameError.check(*conditions, valid=benchmark.conditions, kind="condition", owner=where)
        check_score(benchmark, score, where)
    if contrast.sides[0] == contrast.sides[1]:
        raise ConfigError(f"{where}: {contrast.variant!r} is compared with itself")
    if (contrast.expect in WITHIN) != (contrast.margin > 0):
        raise ConfigError(f"{where}: margin={contrast.margin!r} and expect={contrast.expect!r} were given; {MARGIN}")
    return contrast


def check_score(benchmark: Benchmark, score: str, where: str) -> None:
    """Refuse a column that the benchmark does not record."""
    name, at, test = score.partition("@")
    known = [benchmark.task_score, *(metric.key for metric in (*LOSSES, *COSTS))]
    if name not in known:
        known += [benchmark.task(condition).main_score for condition in benchmark.conditions]
    if name not in known:
        raise UnknownNameError(score, dict.fromkeys(known), kind="score", owner=where)
    if at:
        UnknownNameError.check(test, valid=benchmark.tests, kind="test", owner=where)


def made(kind: type[T], content: Any, where: str) -> T:
    """Make a dataclass from an entry of a file."""
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    if not isinstance(content, dict):
        raise ConfigError(f"{where} must hold names and values; entries: {', '.join(known)}")
    UnknownNameError.check(*content, valid=known, kind="entry", owner=where)
    with raised_as(ConfigError, lambda error: f"{where}: {error}", TypeError):
        return kind(**content)


def entries(file: Path) -> dict[str, Any]:
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise ConfigError(f"{file} must hold names with an entry each")
    return content
