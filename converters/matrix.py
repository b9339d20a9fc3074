"""Which variant goes where: every variant and task, planned for every target."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from zoo.base.printed import table_in_markdown
from zoo.building.builder import build, config
from zoo.models import ZooPreTrainedModel
from zoo.registry import VARIANTS, list_variants

from .bundle import BundleTarget
from .converter import CONVERTERS
from .native.declared import NATIVE
from .native.writing import NativeTarget
from .planning import nearest, plan_export, scrambled
from .symmetries.base import SYMMETRIES
from .target import TARGETS, EngineTarget, explained

TINY: dict[str, Any] = {
    "vocab_size": 29,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "sizes": "fixed",
}

MEASURED = Path(__file__).with_name("measured.tsv")
"""How far exports were from their originals, as `scripts/bench/exports.py` measured it."""


@dataclass(frozen=True)
class MatrixRow:
    """One variant with one head."""

    variant: str
    task: str
    target: str | None  # The first class of transformers that expresses it, None if none does
    transforms: tuple[str, ...]  # The symmetries that lead there
    others: tuple[str, ...]  # Further classes that express it
    reason: str  # Why the nearest class does not, empty where one does
    # Why it cannot go to each other target, by the target's name; nothing where it can
    engines: Mapping[str, tuple[str, ...]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def difference(self, target: str) -> float | None:
        """How far an export was from the original in float32, None where that was not measured."""
        return measured().get((self.variant, self.task, target))

    def cell(self, target: str) -> str:
        if self.engines[target]:
            return "no"
        difference = self.difference(target)
        if difference is not None:
            return f"{difference:.0e}"
        return "tried" if TARGETS.get(target).by_trial else "exact"


@cache
def measured() -> Mapping[tuple[str, str, str], float]:
    with MEASURED.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {(row["variant"], row["task"], row["target"]): float(row["difference"]) for row in rows}


def other_targets() -> dict[str, str]:
    """The targets that are no class of transformers, with engines' own names, but for the bundle."""
    return {name: getattr(TARGETS.get(name), "engine", name) for name in TARGETS if name != BundleTarget.name}


def export_matrix(patterns: str | Iterable[str] = "*") -> Iterator[MatrixRow]:
    """Plan exports of small models of every variant and task."""
    for name in list_variants(patterns):
        for task in VARIANTS.get(name).tasks:
            yield matrix_row(name, task)


def matrix_row(name: str, task: str) -> MatrixRow:
    model = small_model(name, task)
    engines = {target: TARGETS.get(target).plan(model).obstacles for target in other_targets()}
    plans = plan_export(model)
    exact = [plan for plan in plans if plan.exact]
    if exact:
        others = tuple(plan.target for plan in exact[1:])
        return MatrixRow(name, task, exact[0].target, exact[0].transforms, others, "", engines)
    near = nearest(plans)
    reason = "no class for this task" if near is None else f"{near.target}: {'; '.join(near.obstacles)}"
    return MatrixRow(name, task, None, (), (), reason, engines)


def small_model(name: str, task: str) -> ZooPreTrainedModel:
    rope = getattr(config(name, task, **TINY), "rope_parameters", None) or {}
    is_narrow = TINY["hidden_size"] // TINY["num_attention_heads"] * rope.get("partial_rotary_factor", 1.0) < 2
    return scrambled(build(name, task, seed=0, **{**TINY, **({"num_attention_heads": 2} if is_narrow else {})}))


def to_markdown(rows: Iterable[MatrixRow]) -> str:
    targets = other_targets()
    titles = ("Variant", "Task", "Class of transformers, by", "Difference", "Also", *targets.values())
    lines = []
    for row in rows:
        by = ", ".join(row.transforms) or "renaming"
        to = f"none; nearest {row.reason}" if row.target is None else f"**{row.target}** by {by}"
        found = None if row.target is None else row.difference(row.target)
        difference = "" if found is None else f"{found:.0e}"
        cells = (row.variant, row.task, to, difference, ", ".join(row.others), *map(row.cell, targets))
        lines.append(cells)
    return table_in_markdown(titles, lines) + "\n"


def obstacles_to_markdown(rows: Iterable[MatrixRow]) -> str:
    """List for every target what cannot go there, by the reason."""
    rows, lines = list(rows), []
    for target, called in other_targets().items():
        kept: dict[str, list[str]] = {}
        for row in rows:
            for obstacle in row.engines[target]:
                kept.setdefault(explained([obstacle]), []).append(row.variant)
        if kept:
            lines += [f"### {called}", ""]
            lines += [f"- {obstacle}: {', '.join(dict.fromkeys(names))}" for obstacle, names in sorted(kept.items())]
            lines.append("")
    return "\n".join(lines)


def to_page(rows: Iterable[MatrixRow]) -> str:
    rows = list(rows)
    targets = [TARGETS.get(name) for name in TARGETS]
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.get_template("matrix.md.jinja").render(
        formats=[*CONVERTERS],
        types=sorted(kind for name in NATIVE for kind in NATIVE.get(name).model_types),
        native=NativeTarget,
        targets=targets,
        extras=sorted({target.extra for target in targets if isinstance(target, EngineTarget)}),
        symmetries=[SYMMETRIES.get(name) for name in SYMMETRIES],
        matrix=to_markdown(rows),
        obstacles=obstacles_to_markdown(rows),
    )
