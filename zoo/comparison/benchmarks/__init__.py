"""Benchmarks: named comparisons of all variants, and what came out of them, recorded run by run."""

from __future__ import annotations

from .definition import Benchmark, benchmarks, find_benchmark
from .judging import Verdicts, judge
from .rows import Row, read_rows, record
from .running import bench
from .verifying import Repeated, verify

__all__ = [
    "Benchmark",
    "Repeated",
    "Row",
    "Verdicts",
    "bench",
    "benchmarks",
    "find_benchmark",
    "judge",
    "read_rows",
    "record",
    "verify",
]
