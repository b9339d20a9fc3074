"""Content of the report, for its template."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from zoo.data.tasks import TASKS, split_name

from ...results.comparison import Comparison
from ...results.metrics import Metric
from ...results.statistics import BETTER, WORSE, Measurements, most_coverage
from ...results.summary import ComparisonSummary, VariantSummary
from ...results.units import counted, duration, large
from ..cells import corrected, difference
from ..findings import basis, findings, headline
from ..formatting import NOTHING, span, spread_beside
from ..records import to_csv
from .architecture import architectures_of
from .charts import curve_charts, first_cost, forest, scatter_charts
from .outputs import examples_of
from .svg import DASHES, MARKERS, SERIES


@dataclass(frozen=True)
class Cell:
    """A number in the table: mean and spread as text, what the row is sorted by, and all that is known of it."""

    mean: str
    spread: str
    value: float | None
    told: str
    is_best: bool


def to_html(summary: ComparisonSummary) -> str:
    """Write a comparison as a page with its style, its script and its charts in it."""
    here = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=here, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["breakable"] = breakable
    return environment.get_template("page.html.jinja").render(context(summary))


def context(summary: ComparisonSummary) -> dict[str, Any]:
    """Find everything that the template shows."""
    comparison = summary.comparison
    return {
        "comparison": comparison,
        "summary": summary,
        "title": f"{comparison.task}: {counted(len(comparison.names), 'variant')}",
        "facts": list(facts(summary)),
        "headline": headline(summary),
        "findings": list(findings(summary)),
        "basis": list(basis(summary)),
        "forest": forest(summary),
        "groups": groups(summary.metrics),
        "cells": {row.name: [cell(summary, column, row) for column in summary.metrics] for row in summary.rows},
        "judged": {row.name: (difference(summary, row), corrected(row)) for row in summary.rows},
        "verdict_class": verdict_class,
        "curves": list(curve_charts(summary)),
        "scatters": list(scatter_charts(summary)),
        "cost": first_cost(summary),
        "examples": examples_of(comparison),
        "architectures": architectures_of(comparison),
        "csv": base64.b64encode(to_csv(summary).encode()).decode(),
        "command": shlex.join(comparison.command),
        "recipe": json.dumps(comparison.recipe, indent=2, ensure_ascii=False, default=str),
        "series": SERIES,
        "markers": MARKERS,
        "dashes": DASHES,
        "nothing": NOTHING,
        "span": span([len(row.runs) for row in summary.rows]),
        "coverage": most_coverage(len(comparison.seeds)),
        "version": comparison.environment.get("versions", {}).get("transformer-zoo"),
    }


def breakable(text: str) -> Markup:
    """Let a name be wrapped after every sign."""
    return Markup("<wbr>").join(re.split(r"(?<=[:,_.=])|(?=\+)", text))


def facts(summary: ComparisonSummary) -> Iterator[tuple[str, str]]:
    """Say in a few words what was compared."""
    comparison = summary.comparison
    yield "Baseline", comparison.baseline
    yield "Seed" if len(comparison.seeds) == 1 else "Seeds", ", ".join(map(str, comparison.seeds))
    if comparison.budget:
        yield "Budget", ", ".join(f"{large(value)} {name}" for name, value in comparison.budget.items())
    matched = {"none": "nothing", "params": "parameters", "flops": "FLOPs a token"}[comparison.match]
    yield "Matched", matched if comparison.match_to is None else f"{matched} of {comparison.match_to}"
    if comparison.sweep:
        tried = ", ".join(f"{name} of {len(values)} values" for name, values in comparison.sweep["values"].items())
        yield "Swept", tried
    reports = [run.report for run in comparison.runs if run.report is not None]
    if reports:
        yield "Data", data_name(comparison)
        yield "Examples", f"{reports[0]['train_examples']:,} training, {reports[0]['heldout_examples']:,} held-out"
    if comparison.date:
        yield "Date", comparison.date
    yield "Took", duration(comparison.seconds)


def data_name(comparison: Comparison) -> str:
    """Name the data by its file, or by what ships with the zoo for the task."""
    words = comparison.command
    if "--data" in words:
        return Path(words[words.index("--data") + 1]).name
    shipped = TASKS.get(split_name(comparison.task)[0]).shipped if split_name(comparison.task)[0] in TASKS else None
    return "generated" if shipped is None else f"{shipped.name}, which ships with the zoo"


def groups(columns: Sequence[Metric]) -> list[tuple[str, list[Metric]]]:
    """Put metrics under common headings."""
    found: dict[str, list[Metric]] = {}
    for column in columns:
        found.setdefault(column.group, []).append(column)
    return list(found.items())


def cell(summary: ComparisonSummary, column: Metric, row: VariantSummary) -> Cell:
    """Write one number of the table."""
    sample = row.samples.get(column.key)
    if sample is None:
        return Cell(NOTHING, "", None, "not measured", False)
    others = [other.samples[column.key].mean for other in summary.rows if column.key in other.samples]
    best = (max if column.better > 0 else min)(others)
    is_best = bool(column.better) and sample.mean == best and len(set(others)) > 1
    spread = spread_beside(column.write, sample)
    return Cell(column.write(sample.mean), spread, sample.mean, told(column, sample), is_best)


def told(column: Metric, sample: Measurements) -> str:
    """Write all that is known of a number in a line."""
    values = ", ".join(map(column.write, sample.values))
    if sample.interval is None:
        return f"{column.title}: {values}"
    low, high = map(column.write, sample.interval)
    return f"{column.title}: {values}; bootstrap interval {low} to {high}"


def verdict_class(verdict: str) -> str:
    """The class of a verdict in the style sheet."""
    return verdict if verdict in (BETTER, WORSE, "failed", "baseline") else "noise"
