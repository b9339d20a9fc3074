"""Verdicts as tables: for the terminal, and as Markdown for docs/results.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zoo.base.printed import table_in_markdown
from zoo.comparison.results.metrics import COSTS, LOSSES
from zoo.comparison.results.statistics import EDGE, EQUAL, Measurements, pareto_front
from zoo.comparison.results.units import counted, p_value

from ..results.design import FAILED
from .judging import Standing, Verdicts
from .rows import Row

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


def front(verdicts: Verdicts, cost: str) -> list[Standing]:
    """Find the Pareto front: the variants that none beats both in score and in cost, of those that lost fewest runs."""
    both = [one for one in verdicts.standings if verdicts.score in one.samples and cost in one.samples]
    fewest = min((one.lost for one in both), default=0)
    both = [one for one in both if one.lost == fewest]
    better = verdicts.benchmark.better(verdicts.score)
    found = pareto_front(both, lambda one: (better * one.samples[verdicts.score].mean, -one.samples[cost].mean))
    return sorted(found, key=lambda one: one.samples[cost].mean)


def markdown_table(verdicts: Verdicts) -> str:
    columns = headings(verdicts)
    return in_markdown(columns, [cells(verdicts, one) for one in verdicts.standings])


def in_markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table of Markdown; rows begin with a variant."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return table_in_markdown(columns, ([f"`{row[0]}`", *row[1:]] for row in rows), rule)


def description(verdicts: Verdicts) -> str:
    """Describe a table: which variants are better, worse, undecided, or failed and why, and the Pareto front."""
    labels = {
        "better": "Better than the baseline beyond noise",
        "worse": "Worse than the baseline beyond noise",
        "the same": f"The same within {verdicts.benchmark.margin or 0.0:g}",
        EQUAL: "Equal to the baseline with every seed",
        "within noise": "No different from the baseline beyond noise",
        "undecided": f"Undecided, of at most {verdicts.benchmark.most_seeds} seeds",
        EDGE: "Undecided, as a swept value is best at the edge of what was tried",
        "untested": "With too few seeds to test",
    }
    lines = []
    for word, label in labels.items():
        if found := [f"`{one.variant}`" for one in verdicts.standings if one.verdict == word]:
            lines.append(f"- {label}: {', '.join(found)}.")
    failed = [one for one in verdicts.standings if one.verdict == FAILED]
    lines += [f"- `{one.variant}` failed: {one.rows[0].error or 'its score is no number'}." for one in failed]
    if len(verdicts.standings) > 1 and (cheapest := front(verdicts, "training_flops")):
        names = ", ".join(f"`{one.variant}`" for one in cheapest)
        lines.append(
            f"- Best for the operations that training takes (the Pareto front of the means, cheapest first): {names}."
        )
    for argument, variants in verdicts.at_the_edge().items():
        values = ", ".join(f"`{name}` ({value:g})" for name, value in variants.items())
        lines.append(
            f"- Best with a `{argument}` at the edge of what was tried, so perhaps better beyond it: {values}."
        )
    lines += [
        f"- Weight decay is not equal for `{one.variant}`: {what} decay in one of the two alone."
        for one in verdicts.standings
        if (what := verdicts.unequal_decay(one.variant))
    ]
    lines += [
        f"- `{one.variant}` differs from its paper: {what}" for one in verdicts.standings for what in one.deviations
    ]
    if verdicts.missing:
        lines.append(f"- Not recorded yet: {', '.join(f'`{name}`' for name in verdicts.missing)}.")
    return "\n".join(lines)


def made_on(rows: Sequence[Row]) -> str:

    def listed(values: Iterable[str]) -> str:
        return ", ".join(sorted(set(values)))

    dates = sorted({row.date for row in rows})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    busy = sum(row.was_busy for row in rows)
    idle = "on an idle machine" if not busy else f"{busy} of {len(rows)} while the machine had other work"
    where = f"{listed(row.machine for row in rows)}, {listed(counted(row.threads, 'thread') for row in rows)}, {idle}"
    made = f"zoo {listed(row.zoo for row in rows)}, torch {listed(row.torch for row in rows)}"
    made += f", transformers {listed(row.transformers for row in rows)}"
    return f"{counted(len(rows), 'run')}, {days}; {where}; {made}."
