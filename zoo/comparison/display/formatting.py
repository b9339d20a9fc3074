"""Texts, cells and records of a comparison, for every format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from zoo.training.answers import table_text

from ..results.metrics import Metric
from ..results.statistics import Measurements
from ..results.summary import ComparisonSummary, VariantSummary
from ..results.units import Writer, decisive

RUN_FIELDS = ("name", "seed", "hash")


def records(summary: ComparisonSummary) -> list[dict[str, Any]]:
    """List the runs with all their numbers (bytes, seconds, shares), None for missing numbers."""
    sheet, words = summary.fairness, {row.name: row.verdict for row in summary.rows}
    return [
        {
            **{field: getattr(run, field) for field in RUN_FIELDS},
            **{column.key: column.read(run) for column in summary.metrics},
            "error": run.error,
            "verdict": words[run.name],
            "read_with": "; ".join(sheet.qualifications[run.name]),
            **{
                f"fairness_{topic.lower().replace(' ', '_')}": text
                for topic, text in {**sheet.shared, **sheet.variants[run.name]}.items()
            },
        }
        for run in summary.comparison.runs
    ]


def to_csv(summary: ComparisonSummary) -> str:
    """Write the records as a table: a line of names, and a line a run."""
    rows = records(summary)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return table_text(names, ([row.get(name) for name in names] for row in rows))


def columns_of(summary: ComparisonSummary, metrics: Iterable[Metric]) -> Iterator[tuple[str, list[str]]]:
    """Write columns: headings with a cell a variant, and the verdict after the main score."""
    for metric in metrics:
        yield metric.title, [number(metric, row) for row in summary.rows]
        if metric is summary.main:
            yield "vs baseline", [difference(summary, row) for row in summary.rows]
            yield "p", list(map(corrected, summary.rows))
            yield "Verdict", [row.verdict for row in summary.rows]


def table(summary: ComparisonSummary, metrics: Iterable[Metric]) -> list[list[str]]:
    """Write a table: the header, then a row a variant."""
    columns = [("Variant", [row.name for row in summary.rows]), *columns_of(summary, metrics)]
    return [list(row) for row in zip(*([heading, *cells] for heading, cells in columns), strict=True)]


def number(column: Metric, row: VariantSummary) -> str:
    """Write one metric of a variant: "41.20 ± 0.53"."""
    return mean_and_spread(column.write, row.samples[column.key]) if column.key in row.samples else NOTHING


def difference(summary: ComparisonSummary, row: VariantSummary) -> str:
    """Write how far a variant is from the baseline: "+0.42"."""
    if row.difference is None or summary.main is None:
        return NOTHING
    return signed(summary.main.write, row.difference.mean)


def corrected(row: VariantSummary) -> str:
    """Write the corrected p-value of the test that decides of a variant: "0.042"."""
    return decisive(row.difference, NOTHING)


NOTHING = "–"  # Placeholder of a missing number


def span(numbers: Sequence[int]) -> str:
    """Write a count that may differ: "3", "3 to 8"."""
    least, most = min(numbers), max(numbers)
    return str(most) if least == most else f"{least} to {most}"


def signed(write: Writer, value: float) -> str:
    """Write a difference with its sign: "+0.42", "−1.30", "+0.00"."""
    written = write(abs(value))
    return ("−" if value < 0 and written != write(0.0) else "+") + written


def mean_and_spread(write: Writer, sample: Measurements) -> str:
    """Write a mean, with the standard deviation if it shows: "41.20 ± 0.53"."""
    text, _, unit = write(sample.mean).partition(" ")
    spread = shown_spread(write, sample)
    return " ".join(filter(None, (text, spread and f"± {spread}", unit)))


def shown_spread(write: Writer, sample: Measurements) -> str:
    """Write a standard deviation in the unit of its mean, and no finer; nothing where it rounds to zero."""
    text, _, unit = write(sample.mean).replace(",", "").partition(" ")
    if not sample.deviation or (unit and not sample.mean):
        return ""
    decimals = len(text.partition(".")[2])
    spread = f"{sample.deviation * (float(text) / sample.mean if unit else 1):,.{decimals}f}"
    return spread if float(spread.replace(",", "")) else ""
