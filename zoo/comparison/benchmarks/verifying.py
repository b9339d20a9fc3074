"""Repeating rows: whether what was recorded comes out again."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo.base.errors import ConfigError
from zoo.base.folders import scratch_folder
from zoo.comparison import compare

from .definition import Benchmark
from .judging import Verdicts, judge
from .rows import DECAYED, Row, name_of_data
from .running import BenchmarkRun, Tell, arguments_of

SPREADS = 3.0  # Standard deviations within which a repeated number counts as the same on another machine

DECISIVE = ("zoo", "torch", "transformers", "python", "machine", "threads")
"""The circumstances under which a number has to come out to the last bit, where they are the same."""


@dataclass(frozen=True)
class Repeated:
    """A row that was run again.

    Attributes:
        row: The row.
        value: The score that came out.
        holds: Whether it is the recorded one: to the last bit on the same machine with the same versions, and within
            the noise of the seeds elsewhere. A relative speed may differ by the margin as well; None of one elsewhere,
            where others are right.
        exact: Whether it was equal to the last bit, as it has to be; None on another machine, or with other versions or
            threads.
    """

    row: Row
    value: float
    holds: bool | None
    exact: bool | None


def verify(
    benchmark: Benchmark,
    rows: Sequence[Row],
    count: int = 1,
    *,
    data: str | Path | None = None,
    seed: int = 0,
    tell: Tell | None = None,
) -> list[Repeated]:
    """Run some recorded rows again.

    Args:
        rows: Recorded rows.
        count: How many rows to repeat.
        data: The text, or the name of a corpus, where the benchmark wants one.
        seed: Which rows.
        tell: Takes sentences about what happens.

    Returns:
        The results, row by row.

    Raises:
        ConfigError: When nothing was recorded of this version of the benchmark with these data.
    """
    text = benchmark.find_text(data)
    name = name_of_data(text)
    usable = [row for row in benchmark.comparable(rows, name) if row.number(benchmark.score) is not None]
    if not usable:
        raise ConfigError(f"no row of benchmark {benchmark.name!r}, version {benchmark.version}, is recorded of {name}")
    chosen = random.Random(seed).sample(usable, min(count, len(usable)))
    return [repeat(benchmark, row, judge(benchmark, rows, row.condition, data=name), text, tell) for row in chosen]


def repeat(benchmark: Benchmark, row: Row, verdicts: Verdicts, data: Path | None, tell: Tell | None) -> Repeated:
    """Run a row again, with the sizes and the training arguments that were chosen for it."""
    with scratch_folder() as scratch:
        session = BenchmarkRun(benchmark, scratch, data, None, {}, False, tell or (lambda _: None))
        if benchmark.timed:
            baseline = benchmark.baseline(row.condition)
            (timed,) = session.timed(row.condition, [row.variant], [row.seed], baseline)
            return judged(row, timed.values[benchmark.score], asdict(timed), verdicts)
        chosen = {name: value for name, value in row.settings.items() if name not in ("max_steps", "tried", DECAYED)}
        arguments = {"data": data, **arguments_of(benchmark, row.condition, chosen)}
        for decided in ("match", "match_by", "match_to"):
            arguments.pop(decided, None)
        again = compare([row.variant], seeds=[row.seed], output_dir=scratch, progress=False, tell=tell, **arguments)
        (run,) = again.runs
        if run.error is not None:
            session.tell(f"{run.label} failed: {run.error}")
        value = session.values(row.condition, run, scratch).get(benchmark.score, math.nan)
    return judged(row, value, run.circumstances, verdicts)


def judged(row: Row, value: float, circumstances: Mapping[str, Any], verdicts: Verdicts) -> Repeated:
    score = verdicts.benchmark.score
    recorded = row.values[score]
    standing = verdicts.of(row.variant)
    noise = SPREADS * ((standing.samples[score].deviation if standing else None) or 0.0)
    is_here = all(getattr(row, name) == circumstances.get(name) for name in DECISIVE)
    if verdicts.benchmark.timed:
        noise += verdicts.benchmark.margin or 0.0
    elif is_here:
        return Repeated(row, value, holds=value == recorded, exact=value == recorded)
    near = abs(value - recorded) <= noise
    return Repeated(row, value, holds=near if is_here or not verdicts.benchmark.timed else None, exact=None)
