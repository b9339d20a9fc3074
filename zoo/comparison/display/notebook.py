"""A comparison as a notebook shows it."""

from __future__ import annotations

from collections.abc import Iterator

from zoo.base.printed import Note, Part, Table, Title

from ..results.comparison import Comparison
from ..results.summary import summarize
from .findings import headline, sentences
from .formatting import table


def parts_of(comparison: Comparison) -> Iterator[Part]:
    """Describe what was compared, then the table of a terminal, then what it means."""
    summary = summarize(comparison)
    headings, *rows = table(summary, [metric for metric in summary.metrics if metric.in_brief])
    yield Title(comparison.task, headline(summary))
    yield Table(rows, tuple(headings), tuple(heading for heading in headings[1:] if heading != "Verdict"))
    yield from map(Note, sentences(summary))
