"""Which variant goes where: every variant and task, planned and exported for real."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo.building import build, config
from zoo.models import ZooPreTrainedModel
from zoo.registry import VARIANTS, list_variants

from .errors import ExportError, VerificationError
from .exporting import export_as
from .planning import plan_export
from .probe import scrambled
from .symmetries.base import LM_TASKS
from .target import TARGETS, EngineTarget, ExportOptions, TargetPlan

TINY: dict[str, Any] = {
    "vocab_size": 29,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
}


@dataclass(frozen=True)
class MatrixRow:
    """One variant with one head.

    Args:
        variant: The variant's name.
        task: What its head is for.
        target: The first class of transformers that expresses it, None if there is none.
        transforms: The symmetries that lead there.
        difference: How far the export was from the original in float32, None where nothing was exported.
        others: Further classes that express it.
        reason: Why the nearest class does not, empty where one does.
        engines: How far it was in each other engine, by the target's name, or why it cannot go there; empty where that
            was not tried.
    """

    variant: str
    task: str
    target: str | None
    transforms: tuple[str, ...]
    difference: float | None
    others: tuple[str, ...]
    reason: str
    engines: Mapping[str, float | str]

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary, in which every engine has its entry."""
        found = asdict(self)
        return found | found.pop("engines")


def engine_targets() -> dict[str, EngineTarget]:
    """The targets that other engines run, by name."""
    return {name: target for name in TARGETS if isinstance(target := TARGETS.get(name), EngineTarget)}


def export_matrix(patterns: str | Iterable[str] = "*", *, by_trial: bool = False) -> Iterator[MatrixRow]:
    """Build small models of every variant and task with random weights, and export each that has an exact class.

    Args:
        patterns: Which variants, as for [`zoo.list_variants`][].
        by_trial: Whether to export each language model also where only that tells if it works, which takes ten seconds
            or more.

    Yields:
        A row for each variant and task.

    Raises:
        VerificationError: When an export that was planned as exact is not.
    """
    for name in list_variants(patterns):
        for task in VARIANTS.get(name).tasks:
            tasks = set(VARIANTS.get(name).tasks)
            yield matrix_row(name, task, by_trial=by_trial and task in (tasks & LM_TASKS or tasks))


def matrix_row(name: str, task: str, *, by_trial: bool = False) -> MatrixRow:
    """Export a small model to the first exact class, and to other engines.

    Args:
        name: A variant.
        task: One of its tasks.
        by_trial: Whether engines of which only exporting tells if they work are among them.
    """
    model = scrambled(build(name, task, seed=0, **sizes(name, task)))
    engines = {
        name: tried(model, target) if by_trial or not target.by_trial else ""
        for name, target in engine_targets().items()
    }
    plans = plan_export(model)
    exact = [plan for plan in plans if plan.exact]
    if not exact:
        possible = [plan for plan in plans if plan.route is not None]
        nearest = min(possible, key=lambda plan: len(plan.obstacles), default=None)
        reason = "no class for this task" if nearest is None else f"{nearest.target}: {'; '.join(nearest.obstacles)}"
        return MatrixRow(name, task, None, (), None, (), reason, engines)
    difference = exported(model, exact[0])
    others = tuple(plan.target for plan in exact[1:])
    return MatrixRow(name, task, exact[0].target, exact[0].transforms, difference, others, "", engines)


def sizes(name: str, task: str) -> dict[str, Any]:
    """Sizes of a small model.

    Returns:
        `TINY`, with wider heads where a part of each is rotated that would be less than a pair of columns.
    """
    rope = getattr(config(name, task, **TINY), "rope_parameters", None) or {}
    is_narrow = TINY["hidden_size"] // TINY["num_attention_heads"] * rope.get("partial_rotary_factor", 1.0) < 2
    return {**TINY, "num_attention_heads": 2} if is_narrow else TINY


def exported(model: ZooPreTrainedModel, plan: TargetPlan) -> float | None:
    """Export a model, and compare.

    Returns:
        The largest difference, None where nothing was compared.

    Raises:
        ExportError: When that fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = export_as(plan, model, Path(folder), ExportOptions(fresh_process=False))
    return None if report.difference is None else report.difference.float32


def tried(model: ZooPreTrainedModel, target: EngineTarget) -> float | str:
    """Export a model to an engine, if that is possible.

    Returns:
        The largest difference, or why it was refused.

    Raises:
        VerificationError: When an export that was possible computes something else.
    """
    plan = target.plan(model)
    if not plan.exact:
        return "; ".join(plan.obstacles)
    try:
        found = exported(model, plan)
    except VerificationError:
        raise
    except ExportError as error:  # of a target that only trying tells of
        return str(error)
    return float("nan") if found is None else found


def to_markdown(rows: Iterable[MatrixRow]) -> str:
    """Write the matrix as a table for the documentation."""
    targets = engine_targets()
    columns = ("Variant", "Task", "Class of transformers, by", "Difference", "Also")
    titles = (*columns, *(target.engine for target in targets.values()))
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        by = ", ".join(row.transforms) or "renaming"
        to = f"none; nearest {row.reason}" if row.target is None else f"**{row.target}** by {by}"
        difference = "" if row.difference is None else f"{row.difference:.0e}"
        found = [row.engines.get(name, "") for name in targets]
        engines = [value if isinstance(value, str) else f"{value:.0e}" for value in found]
        cells = (row.variant, row.task, to, difference, ", ".join(row.others), *engines)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
