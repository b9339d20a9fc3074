"""Verdicts as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from zoo.base.printed import table_in_markdown
from zoo.comparison.results.metrics import COSTS, LOSSES
from zoo.comparison.results.statistics import Measurements
from zoo.comparison.results.units import decisive

from .judging import Standing, Verdicts

COST_COLUMNS = {column.key: column for column in COSTS}
TITLES = {column.key: column.title for column in (*LOSSES, *COSTS)} | {"blimp": "BLiMP", "bleu": "BLEU", "chrf": "chrF"}


def table(verdicts: Verdicts) -> list[list[str]]:
    """Write verdicts as a table: the headings, then a row a variant; scores come before costs."""
    score, known = verdicts.score, dict.fromkeys(name for one in verdicts.standings for name in one.samples)
    scores = [name for name in known if name not in COST_COLUMNS and name != "train_loss"]
    others = [name for name in (*scores, "parameters", "training_flops") if name != score and name in known]
    columns: list[tuple[str, Callable[[Standing], str]]] = [
        ("Variant", lambda one: one.variant),
        ("Seeds", lambda one: f"{len(one.rows)} ({one.lost} lost)" if one.lost else str(len(one.rows))),
        (title(score), lambda one: spread(one.samples.get(score))),
        ("Difference", lambda one: "" if one.difference is None else f"{one.difference.mean:+.3g}"),
        ("p", lambda one: decisive(one.difference)),
        ("Verdict", lambda one: remarked(verdicts, one)),
        *((title(name), partial(number, name)) for name in others),
    ]
    return [[heading for heading, _ in columns], *([write(one) for _, write in columns] for one in verdicts.standings)]


def remarked(verdicts: Verdicts, standing: Standing) -> str:
    """Write a verdict: "better", "worse (4 seeds)", "better (decay)"."""
    remarks = [f"{standing.pairs} seeds"] if standing.pairs else []
    remarks += ["decay"] if verdicts.unequal_decay(standing.variant) else []
    return f"{standing.verdict} ({', '.join(remarks)})" if remarks else standing.verdict


def spread(sample: Measurements | None) -> str:
    """Write a mean and its deviation."""
    if sample is None:
        return ""
    digits = 2 if abs(sample.mean) >= 10 else 4
    deviation = "" if sample.deviation is None else f" ± {sample.deviation:.{digits}f}"
    return f"{sample.mean:.{digits}f}{deviation}"


def number(column: str, standing: Standing) -> str:
    sample = standing.samples.get(column)
    return spread(sample) if sample is None or column not in COST_COLUMNS else COST_COLUMNS[column].write(sample.mean)


def title(column: str) -> str:
    name, _, test = column.partition("@")
    called = TITLES.get(name, name.replace("_", " ").capitalize())
    return f"{called}, {test}" if test else called


def in_markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table of Markdown; rows begin with a variant."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return table_in_markdown(columns, ([f"`{row[0]}`", *row[1:]] for row in rows), rule)
