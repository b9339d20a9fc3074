"""Content of the report, for its template."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from zoo.analysis.diff import diff, resolve_both
from zoo.analysis.drawing import draw, to_svg_beside
from zoo.base.errors import ZooError
from zoo.data.tasks import TASKS, split_name

from ...results.comparison import Comparison
from ...results.fairness import as_built, recipe_of, settings_of
from ...results.metrics import Metric
from ...results.statistics import BETTER, WORSE
from ...results.summary import ComparisonSummary, VariantSummary
from ...results.units import counted, duration, large
from ...run.record import Run
from ..findings import basis, findings, headline
from ..formatting import NOTHING, corrected, difference, shown_spread, span, to_csv
from ..terminal import chosen_examples, shortened, shown_runs
from .charts import curve_charts, first_cost, forest, scatter_charts
from .svg import DASHES, MARKERS, SERIES

EXAMPLES = 12
MOST_WORDS = 200  # Beyond which words are not compared: a document is not a sentence


def examples_of(comparison: Comparison) -> list[dict[str, Any]]:
    """Choose examples, half of them with different outputs, and put all outputs next to each other."""
    finished = shown_runs(comparison)
    return [
        {
            "number": place + 1,
            "source": shortened(comparison.sources[place]),
            "reference": shortened(comparison.references[place]),
            "outputs": [output(comparison, run, place) for run in finished],
        }
        for place in chosen_examples(comparison, finished, EXAMPLES)
    ]


def output(comparison: Comparison, run: Run, place: int) -> dict[str, Any]:
    """Compare a run's output for an example with the reference; `others` of `seeds` seeds wrote the same."""
    text, reference = run.outputs[place], comparison.references[place]
    written = [other.outputs[place] for other in comparison.runs_of(run.name) if other.outputs]
    return {
        "place": comparison.names.index(run.name),
        "name": run.name,
        "pieces": list(pieces(shortened(text), shortened(reference))),
        "is_right": text == reference,
        "others": written.count(text),
        "seeds": len(written),
    }


def pieces(text: str, reference: str) -> Iterator[dict[str, Any]]:
    """Split a text into words that its reference has in the same order (`is_right`), and others."""
    words, right = text.split(), reference.split()
    if len(words) > MOST_WORDS:
        yield {"text": text, "is_right": text == reference}
        return
    matcher = SequenceMatcher(None, right, words, autojunk=False)
    for kind, _, _, start, end in matcher.get_opcodes():
        if end > start:
            yield {"text": " ".join(words[start:end]), "is_right": kind == "equal"}


KINDS = ("setting", "quirk", "code")  # Facts about a variant; its size as trained is in the table of results

OF_THE_TOKENIZER = ("vocab_size", "decoder_vocab_size")
"""Settings that all variants have here, independent of their defaults."""


def architectures_of(comparison: Comparison) -> list[dict[str, Any]]:
    """Describe how each variant is built.

    `axes` are what differs from the baseline, `unknown` is why that is not known; `chosen` are settings that matching,
    a sweep or the budget chose for the variant and not for all; `drawing` has the baseline next to the variant.
    """
    recipe = recipe_of(comparison)
    task = None if recipe is None else str(recipe.data_task().model_task)
    settings = [settings_of(comparison, name) for name in comparison.names]
    differing = {key for one in settings for key in one if any(other.get(key) != one[key] for other in settings)}
    found = []
    for place, name in enumerate(comparison.names):
        axes, unknown, drawing = [], "", Markup()
        try:
            if name != comparison.baseline:
                baseline, own = (as_built(comparison, one) for one in (comparison.baseline, name))
                differences = diff(baseline, own, task)
                axes = [one for one in differences if one.kind in KINDS and one.axis not in OF_THE_TOKENIZER]
                tasks = resolve_both(baseline, own, task)[1]
                sides = (
                    replace(draw(baseline, tasks[0]), name=comparison.baseline),
                    replace(draw(own, tasks[1]), name=name),
                )
                drawing = Markup(to_svg_beside(*sides))
        except ZooError as error:  # a variant of the user's own that is not there any more
            unknown = str(error)
        chosen = {key: value for key, value in settings[place].items() if key in differing}
        found.append(
            {"place": place, "name": name, "axes": axes, "chosen": chosen, "unknown": unknown, "drawing": drawing}
        )
    return found


def in_words(value: Any, kind: str = "setting") -> str:
    """Write a setting: "yes", "no", "none", or its value; of a quirk, "on" or "off"."""
    if kind == "quirk":
        return "on" if value else "off"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {in_words(one)}" for name, one in value.items())
    return ", ".join(map(in_words, value)) if isinstance(value, list | tuple) else str(value)


def to_html(summary: ComparisonSummary) -> str:
    here = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=here, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"breakable": breakable, "in_words": in_words}
    return environment.get_template("page.html.jinja").render(context(summary))


def context(summary: ComparisonSummary) -> dict[str, Any]:
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
        "groups": [(name, list(own)) for name, own in groupby(summary.metrics, key=lambda column: column.group)],
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
        "version": comparison.environment.get("versions", {}).get("transformer-zoo"),
    }


def breakable(text: str) -> Markup:
    """Let a name be wrapped after every sign."""
    return Markup("<wbr>").join(re.split(r"(?<=[:,_.=])|(?=\+)", text))


def facts(summary: ComparisonSummary) -> Iterator[tuple[str, str]]:
    """Describe in a few words what was compared."""
    comparison = summary.comparison
    yield "Baseline", comparison.baseline
    yield "Seed" if len(comparison.seeds) == 1 else "Seeds", ", ".join(map(str, comparison.seeds))
    if comparison.budget:
        yield "Budget", ", ".join(f"{large(value)} {name}" for name, value in comparison.budget.items())
    yield "Matched", summary.fairness.shared["Matched"]
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
    name = split_name(comparison.task)[0]
    shipped = TASKS.get(name).shipped if name in TASKS else None
    return "generated" if shipped is None else f"{shipped.name}, which ships with the zoo"


def cell(summary: ComparisonSummary, column: Metric, row: VariantSummary) -> dict[str, Any]:
    """Make a number in the table: mean and spread as text, the `value` that rows are sorted by, and its details."""
    sample = row.samples.get(column.key)
    if sample is None:
        return {"mean": NOTHING, "spread": "", "value": None, "details": "not measured", "is_best": False}
    ranked = summary.ranked(column)
    others = [other.samples[column.key].mean for other in ranked]
    best = (max if column.better > 0 else min)(others)
    is_best = bool(column.better) and row in ranked and sample.mean == best and len(set(others)) > 1
    details = f"{column.title}: {', '.join(map(column.write, sample.values))}"
    if sample.interval is not None:
        details += f"; bootstrap interval {' to '.join(map(column.write, sample.interval))}"
    shown = {"mean": column.write(sample.mean), "spread": shown_spread(column.write, sample), "value": sample.mean}
    return {**shown, "details": details, "is_best": is_best}


def verdict_class(verdict: str) -> str:
    """The class of a verdict in the style sheet."""
    return verdict if verdict in (BETTER, WORSE, "failed", "baseline") else "noise"
