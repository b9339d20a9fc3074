"""Tables and cards of weights, for terminals and documentation."""

from collections.abc import Iterable
from pathlib import Path

from zoo.base.printed import table_in_markdown
from zoo.registry import RecordedScore, Weights

from .built_in import SHIPPED

UNITS = ("", "k", "M", "G")
MAIN_SCORES = ("bleu", "accuracy", "perplexity")
"""Scores for a table, in order of preference: it shows the first that the weights have."""


def in_words(number: int | None, unit: str) -> str:
    if number is None:
        return ""
    value, prefix = float(number), 0
    while value >= 999.5 and prefix < len(UNITS) - 1:
        value, prefix = value / 1000, prefix + 1
    return f"{value:.3g} {UNITS[prefix]}{unit}".strip()


def place_of(weights: Weights) -> str:
    if weights.on_hub:
        return weights.source.partition("@")[0]
    return "shipped" if Path(weights.source).parent == SHIPPED else weights.source


def main_score(weights: Weights) -> RecordedScore | None:
    return next((weights.scores[key] for key in MAIN_SCORES if key in weights.scores), None)


def scores_text(weights: Weights) -> str:
    score = main_score(weights)
    if score is None:
        return ""
    return f"{score.name} {score} ({score.interval_text})" if score.interval_text else f"{score.name} {score}"


def facts(weights: Weights) -> list[tuple[str, str]]:
    rows = {
        "variant": weights.variant,
        "task": weights.task,
        "from": weights.source if weights.on_hub else place_of(weights),
        "licence": weights.license,
        "data": weights.data,
        "licence of the data": weights.data_license,
        "tokenizer": weights.tokenizer,
        "limits": weights.limits,
        "parameters": "" if weights.num_parameters is None else f"{weights.num_parameters:,}",
        "stored as": weights.dtype or "",
        "size": in_words(weights.size, "B"),
        "trained by": weights.command_line,
        "started from": weights.parent or "",
        "with": ", ".join(f"{name} {version}" for name, version in weights.versions.items()),
    }
    return [(name, text) for name, text in rows.items() if text]


def to_markdown(found: Iterable[Weights]) -> str:
    listed = list(found)
    here = [
        (f"`{one.name}`", one.summary, in_words(one.num_parameters, ""), scores_text(one), in_words(one.size, "B"))
        for one in listed
        if not one.on_hub
    ]
    there = [(f"`{one.name}`", one.summary, f"`{place_of(one)}`", one.license) for one in listed if one.on_hub]
    tables = (
        (("name", "what it does", "parameters", "score on held-out examples", "size"), here),
        (("name", "what it does", "from", "licence"), there),
    )
    return "\n".join(f"{table_in_markdown(headings, rows)}\n" for headings, rows in tables if rows)
