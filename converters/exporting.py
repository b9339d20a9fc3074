"""Exports: models of the zoo as folders that plain transformers loads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.folders import check_output, written_whole
from zoo.loading import load
from zoo.models import TASK_CLASSES, ZooPreTrainedModel
from zoo.registry import Task

from .bundle import write_bundle
from .errors import ExportError
from .model_card import write_card
from .native.base import NATIVE
from .native.tokenizer import carry_tokenizer
from .native.writing import write_native
from .planning import BUNDLE, TargetPlan, plan_export, plan_target
from .verification import Difference, verify
from .weights import task_of, weights_of


@dataclass(frozen=True)
class ExportReport:
    """What an export did.

    Args:
        target: The target's name.
        class_name: The class of transformers that the folder holds.
        auto_class: The Auto class that loads it.
        folder: Where it is.
        transforms: The symmetries that were applied, each with what it did.
        notes: What users should know.
        output: Where the class returns what the model computes.
        difference: How far it is from the original, None where that was not measured.
        files: The files of the folder.
    """

    target: str
    class_name: str
    auto_class: str
    folder: Path
    transforms: dict[str, str]
    notes: tuple[str, ...]
    output: str
    difference: Difference | None
    files: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As a dictionary of plain values."""
        return {
            "target": self.target,
            "class": self.class_name,
            "auto_class": self.auto_class,
            "folder": str(self.folder),
            "transforms": self.transforms,
            "notes": list(self.notes),
            "output": self.output,
            "difference": None if self.difference is None else self.difference.to_dict(),
            "files": list(self.files),
        }


def export(
    model: ZooPreTrainedModel | str | os.PathLike[str],
    out: str | os.PathLike[str],
    target: str | None = None,
    *,
    force: bool = False,
    fresh_process: bool = True,
) -> ExportReport:
    """Write a model in a form that needs no zoo.

        zoo.export("my-model", "out")             # the first class of transformers that expresses it exactly
        zoo.export(model, "out", "marian")
        zoo.export(model, "out", "bundle")        # with its own code, for trust_remote_code=True

    The export is loaded in a process that cannot import the zoo, and compared with the model: outputs on random padded
    inputs, and tokens of greedy decoding. What was measured stands in the model card. Where something fails, nothing is
    left behind.

    Args:
        model: A model, or the folder of a saved one, whose tokenizer is taken along.
        out: The folder to write.
        target: A model type of transformers ("marian", "bert", ...) or "bundle"; by default the first exact one.
        force: Whether a saved model in the folder may be replaced.
        fresh_process: Whether the comparison runs in a process of its own; without, it is quicker and weaker.

    Returns:
        What was done.

    Raises:
        ExportError: When the target is not exact; the message says why, and what else would work.
        VerificationError: When the export does not compute what the model does.
    """
    folder = Path(out)
    check_output(folder, force=force)
    source = None if isinstance(model, ZooPreTrainedModel) else Path(model)
    loaded = model if isinstance(model, ZooPreTrainedModel) else load(Path(model))
    with written_whole(folder, force=force) as workshop:
        report = (
            export_bundle(loaded, workshop, fresh_process=fresh_process)
            if target == BUNDLE
            else export_native(loaded, workshop, choose(loaded, target), fresh_process=fresh_process)
        )
        if source is not None:
            carry_tokenizer(source, workshop)
        write_card(workshop, report, loaded)
        files = tuple(sorted(str(path.relative_to(workshop)) for path in workshop.rglob("*") if path.is_file()))
    return ExportReport(**{**report.__dict__, "folder": folder, "files": files})


def choose(model: ZooPreTrainedModel, target: str | None) -> TargetPlan:
    """Find the target to export to.

    Args:
        model: The model.
        target: A target's name, None for the first exact one.

    Returns:
        An exact plan.

    Raises:
        ExportError: When there is none, saying why and what else would work.
    """
    if target is not None:
        plan = plan_target(NATIVE.get(target), model.config, weights_of(model), task_of(model))
        if plan.exact:
            return plan
        exact = ", ".join([*(other.target for other in plan_export(model) if other.exact), BUNDLE])
        raise ExportError(f"{target} cannot express this model: {'; '.join(plan.obstacles)}. What works: {exact}")
    plans = plan_export(model)
    if plans[0].exact:
        return plans[0]
    near = [plan for plan in plans if plan.route is not None]
    nearest = min(near, key=lambda plan: len(plan.obstacles), default=None)
    why = f"; the nearest is {nearest.target}: {'; '.join(nearest.obstacles)}" if nearest is not None else ""
    raise ExportError(f"no class of transformers expresses this model exactly{why}. What works: {BUNDLE}")


def export_native(
    model: ZooPreTrainedModel, workshop: Path, plan: TargetPlan, *, fresh_process: bool = True
) -> ExportReport:
    """Write a model as one of a class of transformers, and verify it.

    Args:
        model: The model.
        workshop: An empty folder.
        plan: An exact plan.
        fresh_process: Whether the comparison runs in a process of its own.

    Returns:
        What was done.

    Raises:
        VerificationError: When the export does not compute what the model does.
    """
    native, task = NATIVE.get(plan.target), task_of(model)
    if plan.route is None or plan.class_name is None or not plan.exact:
        raise ExportError(f"{plan.target} cannot express this model: {'; '.join(plan.obstacles)}")
    write_native(model, workshop, native, plan.route)
    auto_class = TASK_CLASSES[task][0]
    output = native.output(plan.route.config, task)
    difference = verify(model, workshop, auto_class, output, in_process=not fresh_process)
    steps = {step.symmetry.name: step.symmetry.summary for step in plan.route.steps}
    return ExportReport(plan.target, plan.class_name, auto_class, workshop, steps, plan.notes, output, difference)


def export_bundle(model: ZooPreTrainedModel, workshop: Path, *, fresh_process: bool = True) -> ExportReport:
    """Write a model with the code that it needs, and verify it.

    Args:
        model: The model.
        workshop: An empty folder.
        fresh_process: Whether the comparison runs in a process of its own, as it must to mean something.

    Returns:
        What was done.
    """
    task = task_of(model)
    write_bundle(model, workshop)
    output = "last_hidden_state" if task == Task.FEATURE_EXTRACTION else "logits"
    auto_class = TASK_CLASSES[task][0]
    difference = verify(model, workshop, auto_class, output, trust_remote_code=True) if fresh_process else None
    note = "Load it with trust_remote_code=True: it brings its own code."
    return ExportReport(BUNDLE, type(model).__name__, auto_class, workshop, {}, (note,), output, difference)
