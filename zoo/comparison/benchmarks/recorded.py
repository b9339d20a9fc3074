"""Recorded results by variant: of one in all benchmarks, and of all in one."""

from __future__ import annotations

from typing import Any

from zoo.base.errors import ConfigError

from .definition import Benchmark, benchmarks, find_benchmark
from .judging import Standing, Verdicts, judge
from .rows import read_rows


def recorded(benchmark: Benchmark) -> list[Verdicts]:
    rows = read_rows(benchmark.results)
    found = [judge(benchmark, rows, condition) for condition in benchmark.conditions]
    return [verdicts for verdicts in found if verdicts.standings]


def standings_of(variant: str) -> list[tuple[Verdicts, Standing]]:
    """Find a variant in all benchmarks."""
    judged = [verdicts for benchmark in benchmarks().values() for verdicts in recorded(benchmark)]
    return [(verdicts, standing) for verdicts in judged if (standing := verdicts.of(variant)) is not None]


def ranking(name: str) -> Verdicts:
    """Describe how variants stand in a benchmark, under the first of its conditions that was recorded."""
    benchmark = find_benchmark(name)
    for verdicts in recorded(benchmark):
        return verdicts
    known = [one.name for one in benchmarks().values() if read_rows(one.results)]
    raise ConfigError(f"nothing is recorded of benchmark {benchmark.name!r}; of these is: {', '.join(known)}")


def as_data(verdicts: Verdicts, standing: Standing) -> dict[str, Any]:
    sample, difference = standing.samples.get(verdicts.score), standing.difference
    return {
        "benchmark": verdicts.benchmark.name,
        "condition": verdicts.condition,
        "score": verdicts.score,
        "mean": sample and sample.mean,
        "seeds": len(standing.rows),
        "difference": difference and difference.mean,
        "verdict": standing.verdict,
    }
