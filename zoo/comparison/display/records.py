"""A comparison as plain records, a run each."""

from __future__ import annotations

import csv
import io
from typing import Any

from ..results.summary import ComparisonSummary

RUN_FIELDS = ("name", "seed", "hash")


def records(summary: ComparisonSummary) -> list[dict[str, Any]]:
    """List the runs with all their numbers: bytes, seconds, shares.

    Returns:
        A dictionary a run, such as pandas makes a table of; None where there is no number.
    """
    return [
        {
            **{field: getattr(run, field) for field in RUN_FIELDS},
            **{column.key: column.read(run) for column in summary.metrics},
            "error": run.error,
        }
        for run in summary.comparison.runs
    ]


def to_csv(summary: ComparisonSummary) -> str:
    """Write the records as a table: a line of names, and a line a run."""
    text = io.StringIO()
    names = [*RUN_FIELDS, *(column.key for column in summary.metrics), "error"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records(summary))
    return text.getvalue()
