"""Rows of benchmarks with numbers that are made up."""

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.comparison.benchmarks import Benchmark, Row

Scores = Mapping[str, Sequence[float | None]]


def made_rows(
    benchmark: Benchmark, scores: Scores, condition: str = "", *, score: str = "", **fields: Any
) -> list[Row]:
    """A row a variant and seed, of the data that the benchmark names; None is a run that failed."""
    settings, others = fields.pop("settings", {}), fields
    return [
        Row(benchmark.version, condition, name, seed, benchmark.data, settings, values, "" if values else "it diverged")
        for name, own in scores.items()
        for seed, number in enumerate(own)
        for values in [{} if number is None else {score or benchmark.score: number, **others}]
    ]
