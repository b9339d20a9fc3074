"""Repeating rows: whether what was recorded comes out again."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.comparison import compare
from zoo.errors import ConfigError
from zoo.models import ZooConfig

from .definition import Benchmark
from .judging import Verdicts, judge
from .rows import SHIPPED, Row
from .running import Tell, machine

SPREADS = 3.0
"""Standard deviations within which a repeated number counts as the same on another machine."""


@dataclass(frozen=True)
class Repeated:
    """A row that was run again.

    Attributes:
        row: The row.
        value: The score that came out.
        holds: Whether it is the recorded one: to the last bit on the same machine with the same versions, and within
            the noise of the seeds elsewhere.
        exact: Whether it had to be, and was, equal to the last bit; None on another machine.
    """

    row: Row
    value: float
    holds: bool
    exact: bool | None


def verify(
    benchmark: Benchmark,
    rows: Sequence[Row],
    count: int = 1,
    *,
    data: Path | None = None,
    seed: int = 0,
    tell: Tell | None = None,
) -> list[Repeated]:
    """Run some recorded rows again.

    Args:
        benchmark: The benchmark.
        rows: What was recorded.
        count: How many rows to repeat.
        data: The text, where the benchmark wants one.
        seed: Which rows.
        tell: Takes sentences about what happens.

    Returns:
        What came out, row by row.

    Raises:
        ConfigError: When nothing was recorded of this version of the benchmark.
    """
    wanted = benchmark.text.sha256 if benchmark.text else SHIPPED
    usable = [
        row for row in rows if row.version == benchmark.version and row.data == wanted and benchmark.score in row.values
    ]
    if not usable:
        raise ConfigError(f"no row of benchmark {benchmark.name!r}, version {benchmark.version}, is recorded")
    chosen = random.Random(seed).sample(usable, min(count, len(usable)))
    return [repeat(benchmark, row, judge(benchmark, rows, row.condition), data, tell) for row in chosen]


def repeat(benchmark: Benchmark, row: Row, verdicts: Verdicts, data: Path | None, tell: Tell | None) -> Repeated:
    """Run a row again, with the sizes and the training arguments that were chosen for it.

    Args:
        benchmark: The benchmark.
        row: The row.
        verdicts: Those of its condition, which know how much seeds differ.
        data: The text, where the benchmark wants one.
        tell: Takes sentences about what happens.

    Returns:
        What came out.
    """
    arguments = benchmark.arguments(row.condition)
    for decided in ("match", "match_by", "sweep"):
        arguments.pop(decided, None)
    sizes = {name: value for name, value in row.settings.items() if name in ZooConfig.__dataclass_fields__}
    training = {name: value for name, value in row.settings.items() if name not in sizes and name != "max_steps"}
    settings = {**arguments.pop("settings", {}), **sizes}
    training = {**arguments.pop("arguments", {}), **training}
    with tempfile.TemporaryDirectory() as scratch:
        found = compare(
            [row.variant],
            arguments.pop("task"),
            data=arguments.pop("data", data),
            settings=settings,
            seeds=[row.seed],
            output_dir=scratch,
            progress=False,
            tell=tell,
            **arguments,
            **training,
        )
        (run,) = found.runs
    value = float("nan") if run.report is None else of(run.report, benchmark.score)
    same = machine() == row.machine and (found.environment["versions"]["torch"] == row.torch)
    recorded = row.values[benchmark.score]
    standing = verdicts.of(row.variant)
    spread = (standing.samples[benchmark.score].deviation if standing else None) or 0.0
    exact = value == recorded if same else None
    return Repeated(row, value, bool(exact) or abs(value - recorded) <= SPREADS * spread, exact)


def of(report: dict[str, object], column: str) -> float:
    """Read a score or a loss of a report.

    Args:
        report: What [`zoo.training.TrainingReport`][] writes.
        column: The column.

    Returns:
        The number.
    """
    scores = report["scores"]
    assert isinstance(scores, dict)
    return float(scores[column]["value"] if column in scores else report[column])  # type: ignore[arg-type]
