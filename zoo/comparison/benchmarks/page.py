"""Verdicts as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zoo.base.printed import table_in_markdown
from zoo.comparison.results.metrics import COSTS, LOSSES
from zoo.comparison.results.statistics import Measurements
from zoo.comparison.results.units import p_value

from .judging import Standing, Verdicts

COST_COLUMNS = {column.key: column for column in COSTS}
TITLES = {column.key: column.title for column in (*LOSSES, *COSTS)} | {"blimp": "BLiMP", "bleu": "BLEU", "chrf": "chrF"}


def columns_shown(verdicts: Verdicts) -> list[str]:
    """Choose the columns of a table after the score that decides."""
    known = dict.fromkeys(name for one in verdicts.standings for name in one.samples)
    scores = [name for name in known if name not in COST_COLUMNS and name != "train_loss"]
    return [name for name in (*scores, "parameters", "training_flops") if name != verdicts.score and name in known]


def headings(verdicts: Verdicts) -> list[str]:
    return [
        "Variant",
        "Seeds",
        title(verdicts.score),
        "Difference",
        "p",
        "Verdict",
        *map(title, columns_shown(verdicts)),
    ]


def cells(verdicts: Verdicts, standing: Standing) -> list[str]:
    difference = standing.difference
    lost = f" ({standing.lost} lost)" if standing.lost else ""
    p = None if difference is None else difference.decisive
    remarks = [f"{standing.pairs} seeds"] if standing.pairs else []
    remarks += ["decay"] if verdicts.unequal_decay(standing.variant) else []
    return [
        standing.variant,
        f"{len(standing.rows)}{lost}",
        spread(standing.samples.get(verdicts.score)),
        "" if difference is None else f"{difference.mean:+.3g}",
        "" if p is None else p_value(p),
        standing.verdict + (f" ({', '.join(remarks)})" if remarks else ""),
        *(number(name, standing.samples.get(name)) for name in columns_shown(verdicts)),
    ]


def spread(sample: Measurements | None) -> str:
    """Write a mean and its deviation."""
    if sample is None:
        return ""
    digits = 2 if abs(sample.mean) >= 10 else 4
    deviation = "" if sample.deviation is None else f" ± {sample.deviation:.{digits}f}"
    return f"{sample.mean:.{digits}f}{deviation}"


def number(name: str, sample: Measurements | None) -> str:
    if sample is None:
        return ""
    return COST_COLUMNS[name].write(sample.mean) if name in COST_COLUMNS else spread(sample)


def title(column: str) -> str:
    name, _, test = column.partition("@")
    called = TITLES.get(name, name.replace("_", " ").capitalize())
    return f"{called}, {test}" if test else called


def in_markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table of Markdown; rows begin with a variant."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return table_in_markdown(columns, ([f"`{row[0]}`", *row[1:]] for row in rows), rule)
