"""Cells of the tables of a comparison, in every format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..results.metrics import Metric
from ..results.summary import ComparisonSummary, VariantSummary
from .formatting import NOTHING, mean_and_spread, p_value, signed


def table(summary: ComparisonSummary, columns: Sequence[Metric]) -> list[list[str]]:
    """Write a table: the header, then a row a variant, with the verdict after the main score."""
    return [list(row) for row in zip(*text_columns(summary, columns), strict=True)]


def text_columns(summary: ComparisonSummary, columns: Sequence[Metric]) -> Iterator[list[str]]:
    """Write the columns of a table, each with its heading."""
    yield ["Variant", *(row.name for row in summary.rows)]
    for column in columns:
        yield [column.title, *(number(column, row) for row in summary.rows)]
        if column is summary.main:
            yield ["vs baseline", *(difference(summary, row) for row in summary.rows)]
            yield ["p", *map(corrected, summary.rows)]
            yield ["Verdict", *(row.verdict for row in summary.rows)]


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
    p = None if row.difference is None else row.difference.decisive
    return NOTHING if p is None else p_value(p).removeprefix("= ")
