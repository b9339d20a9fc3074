"""What stands in the cells of every table of a comparison, whatever it is printed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..results.metrics import Metric
from ..results.summary import ComparisonSummary, VariantSummary
from .formatting import NOTHING, mean_and_spread, p_value, signed


def table(summary: ComparisonSummary, columns: Sequence[Metric]) -> list[list[str]]:
    """Put the numbers into rows.

    Args:
        summary: The comparison.
        columns: Which numbers.

    Returns:
        The header, then a row a variant: the difference and its verdict stand behind the main score.
    """
    return [list(row) for row in zip(*text_columns(summary, columns), strict=True)]


def text_columns(summary: ComparisonSummary, columns: Sequence[Metric]) -> Iterator[list[str]]:
    """Write the columns of a table.

    Args:
        summary: The comparison.
        columns: Which numbers.

    Yields:
        A heading and a cell a variant.
    """
    yield ["Variant", *(row.name for row in summary.rows)]
    for column in columns:
        yield [column.title, *(number(column, row) for row in summary.rows)]
        if column is summary.main:
            yield ["vs baseline", *(difference(summary, row) for row in summary.rows)]
            yield ["p", *map(corrected, summary.rows)]
            yield ["Verdict", *(row.verdict for row in summary.rows)]


def number(column: Metric, row: VariantSummary) -> str:
    """Write one number.

    Args:
        column: Which number.
        row: Of which variant.

    Returns:
        Mean and standard deviation.
    """
    return mean_and_spread(column.write, row.samples[column.key]) if column.key in row.samples else NOTHING


def difference(summary: ComparisonSummary, row: VariantSummary) -> str:
    """Write how far a variant is from the baseline.

    Args:
        summary: The comparison.
        row: The variant.

    Returns:
        For instance "+0.42".
    """
    if row.difference is None or summary.main is None:
        return NOTHING
    return signed(summary.main.write, row.difference.mean)


def corrected(row: VariantSummary) -> str:
    """Write a p-value after Holm's correction.

    Args:
        row: A variant.

    Returns:
        For instance "0.042".
    """
    p = None if row.difference is None else row.difference.adjusted
    return NOTHING if p is None else p_value(p).removeprefix("= ")
