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
    sheet, words = summary.fairness, {row.name: row.verdict for row in summary.rows}
    return [
        {
            **{field: getattr(run, field) for field in RUN_FIELDS},
            **{column.key: column.read(run) for column in summary.metrics},
            "error": run.error,
            "verdict": words[run.name],
            "read_with": "; ".join(sheet.qualifications[run.name]),
            **{field_of(topic): text for topic, text in {**sheet.shared, **sheet.variants[run.name]}.items()},
        }
        for run in summary.comparison.runs
    ]


def to_csv(summary: ComparisonSummary) -> str:
    """Write the records as a table: a line of names, and a line a run."""
    text, rows = io.StringIO(), records(summary)
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def field_of(topic: str) -> str:
    """The column of a topic of the fairness sheet: "fairness_weight_decay"."""
    return f"fairness_{topic.lower().replace(' ', '_')}"
