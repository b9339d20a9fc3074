"""Which variant goes where: every variant and task, planned and exported for real."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo.building import build
from zoo.registry import VARIANTS, list_variants

from .exporting import export_native
from .planning import plan_export
from .probe import scrambled

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
    """

    variant: str
    task: str
    target: str | None
    transforms: tuple[str, ...]
    difference: float | None
    others: tuple[str, ...]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary."""
        return asdict(self)


def export_matrix(patterns: str | Iterable[str] = "*") -> Iterator[MatrixRow]:
    """Build small models of every variant and task with random weights, and export each that has an exact class.

    Args:
        patterns: Which variants, as for [`zoo.list_variants`][].

    Yields:
        A row for each variant and task.

    Raises:
        VerificationError: When an export that was planned as exact is not.
    """
    for name in list_variants(patterns):
        for task in VARIANTS.get(name).tasks:
            yield matrix_row(name, task)


def matrix_row(name: str, task: str) -> MatrixRow:
    """Export a small model to the first exact class.

    Args:
        name: A variant.
        task: One of its tasks.

    Returns:
        What came out.
    """
    model = scrambled(build(name, task, seed=0, **TINY))
    plans = plan_export(model)
    exact = [plan for plan in plans if plan.exact]
    if not exact:
        possible = [plan for plan in plans if plan.route is not None]
        nearest = min(possible, key=lambda plan: len(plan.obstacles), default=None)
        reason = "no class for this task" if nearest is None else f"{nearest.target}: {'; '.join(nearest.obstacles)}"
        return MatrixRow(name, task, None, (), None, (), reason)
    with tempfile.TemporaryDirectory() as folder:
        report = export_native(model, Path(folder), exact[0], fresh_process=False)
    difference = None if report.difference is None else report.difference.float32
    others = tuple(plan.target for plan in exact[1:])
    return MatrixRow(name, task, exact[0].target, exact[0].transforms, difference, others, "")


def to_markdown(rows: Iterable[MatrixRow]) -> str:
    """Write the matrix as a table for the documentation.

    Args:
        rows: Its rows.

    Returns:
        Markdown.
    """
    lines = ["| variant | task | first exact class | by | largest difference | others |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row.target is None:
            lines.append(f"| {row.variant} | {row.task} | bundle only | {row.reason} | | |")
        else:
            by, others = ", ".join(row.transforms) or "renaming", ", ".join(row.others)
            lines.append(f"| {row.variant} | {row.task} | {row.target} | {by} | {row.difference:.1e} | {others} |")
    return "\n".join(lines) + "\n"
