"""Benchmarks: named comparisons of all variants, and what came out of them, recorded run by run.

Reading what is recorded imports no torch; what trains is imported when it is used.
"""

from typing import TYPE_CHECKING

from zoo.base.lazy import declared_in, lazy_names

from .definition import Benchmark, benchmarks, find_benchmark
from .judging import Verdicts, judge
from .rows import Row, read_rows, record

if TYPE_CHECKING:
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

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, declared_in(__file__))
