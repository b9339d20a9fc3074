"""Exports: models of the zoo as folders that plain transformers loads."""

from __future__ import annotations

import os
from pathlib import Path

from zoo.fast.int8 import refuse
from zoo.folders import check_output, written_whole
from zoo.manifest import MANIFEST_FILE
from zoo.models import TASK_CLASSES, ZooPreTrainedModel
from zoo.quantizing import Int8Model
from zoo.registry import Task

from .bundle import write_bundle
from .errors import ExportError
from .model_card import write_card
from .native.base import NATIVE
from .native.files import folder_of
from .native.tokenizer import carry_tokenizer
from .native.writing import write_native
from .opening import open_folder
from .planning import BUNDLE, CTRANSLATE2, ONNX, TargetPlan, plan_engines, plan_export, plan_target
from .report import ExportReport
from .symmetries import Route
from .verification import verify
from .weights import task_of, weights_of


def export(
    model: ZooPreTrainedModel | str | os.PathLike[str],
    out: str | os.PathLike[str],
    target: str | None = None,
    *,
    dtype: str | None = None,
    force: bool = False,
    fresh_process: bool = True,
) -> ExportReport:
    """Write a model in a form that needs no zoo.

        zoo.export("my-model", "out")             # the first class of transformers that expresses it exactly
        zoo.export(model, "out", "marian")
        zoo.export(model, "out", "bundle")        # with its own code, for trust_remote_code=True
        zoo.export(model, "out", "onnx")          # graphs for ONNX Runtime
        zoo.export(model, "out", "ctranslate2", dtype="int8")

    The export is loaded where the zoo cannot be imported (or in its engine) and compared with the model: outputs on
    random padded inputs, and tokens of greedy decoding and of beam search. What was measured stands in the model card.
    Where something fails, nothing is left behind.

    Args:
        model: A model; or the folder or repository of a saved one, of the zoo or of a class of transformers that can be
            converted, whose tokenizer is taken along.
        out: The folder to write.
        target: A model type of transformers ("marian", "bert", ...), "bundle", "onnx" or "ctranslate2"; by default the
            first exact model type.
        dtype: For "ctranslate2" how weights are stored: "float32" (by default), "int8", "int16", "bfloat16", ... Only
            float32 has to be equal; of others the card says how far they are.
        force: Whether a saved model in the folder may be replaced.
        fresh_process: Whether the comparison runs in a process of its own; without, it is quicker and weaker.

    Raises:
        ExportError: When the target is not exact; the message says why, and what else would work.
        VerificationError: When the export does not compute what the model does.
    """
    folder = Path(out)
    check_output(folder, force=force)
    if dtype is not None and target != CTRANSLATE2:
        raise ExportError(f"dtype={dtype!r} was given, which only ctranslate2 takes; other exports keep the model's")
    source, loaded = (None, model) if isinstance(model, ZooPreTrainedModel) else opened(model)
    if isinstance(loaded, Int8Model):
        refuse("be exported")
    with written_whole(folder, force=force) as workshop:
        if target == BUNDLE:
            report = export_bundle(loaded, workshop, fresh_process=fresh_process)
        elif target == ONNX:
            report = export_onnx(loaded, workshop)
        elif target == CTRANSLATE2:
            report = export_ctranslate2(loaded, workshop, dtype or "float32", source)
        else:
            report = export_native(loaded, workshop, choose(loaded, target), fresh_process=fresh_process)
        if source is not None:
            carry_tokenizer(source, workshop)
        write_card(workshop, report, loaded)
        written = sorted(str(path.relative_to(workshop)) for path in workshop.rglob("*") if path.is_file())
        files = tuple(name for name in written if name != MANIFEST_FILE)
    return ExportReport(**{**report.__dict__, "folder": folder, "files": files})


def opened(model: str | os.PathLike[str]) -> tuple[Path, ZooPreTrainedModel]:
    """Load a saved model.

    Args:
        model: A folder, or a repository on the Hub.

    Returns:
        Its folder, and the model.
    """
    folder = folder_of(model)
    return folder, open_folder(folder)


def choose(model: ZooPreTrainedModel, target: str | None) -> TargetPlan:
    """Find the target to export to.

    Args:
        model: The model.
        target: A target's name, None for the first exact one.

    Raises:
        ExportError: When there is none, saying why and what else would work.
    """
    if target is not None:
        plan = plan_target(NATIVE.get(target), model.config, weights_of(model), task_of(model))
        if plan.exact:
            return plan
        exact = ", ".join([*(other.target for other in plan_export(model) if other.exact), what_works(model)])
        raise ExportError(f"{target} cannot express this model: {'; '.join(plan.obstacles)}. What works: {exact}")
    plans = plan_export(model)
    if plans[0].exact:
        return plans[0]
    near = [plan for plan in plans if plan.route is not None]
    nearest = min(near, key=lambda plan: len(plan.obstacles), default=None)
    why = f"; the nearest is {nearest.target}: {'; '.join(nearest.obstacles)}" if nearest is not None else ""
    raise ExportError(f"no class of transformers expresses this model exactly{why}. What works: {what_works(model)}")


def what_works(model: ZooPreTrainedModel) -> str:
    """Name the exports that are no class of transformers.

    Returns:
        Those that will work, and that ONNX is worth trying.
    """
    sure = [plan.target for plan in plan_engines(model) if plan.exact and plan.target != ONNX]
    return f"{', '.join(sure)}; {ONNX} is traced and compared when it is tried"


def export_native(
    model: ZooPreTrainedModel, workshop: Path, plan: TargetPlan, *, fresh_process: bool = True
) -> ExportReport:
    """Write a model as one of a class of transformers, and verify it.

    Args:
        model: The model.
        workshop: An empty folder.
        plan: An exact plan.
        fresh_process: Whether the comparison runs in a process of its own.

    Raises:
        VerificationError: When the export does not compute what the model does.
    """
    native, task = NATIVE.get(plan.target), task_of(model)
    if plan.route is None or plan.class_name is None or not plan.exact:
        raise ExportError(f"{plan.target} cannot express this model: {'; '.join(plan.obstacles)}")
    write_native(model, workshop, native, plan.route)
    auto_class = TASK_CLASSES[task][0]
    output = native.output(plan.route.config, task)
    difference = verify(
        model, workshop, auto_class, output, in_process=not fresh_process, in_double=native.computes_in_double
    )
    steps = {step.symmetry.name: step.symmetry.summary for step in plan.route.steps}
    return ExportReport(plan.target, plan.class_name, auto_class, workshop, steps, plan.notes, output, difference)


def export_bundle(model: ZooPreTrainedModel, workshop: Path, *, fresh_process: bool = True) -> ExportReport:
    """Write a model with the code that it needs, and verify it.

    Args:
        model: The model.
        workshop: An empty folder.
        fresh_process: Whether the comparison runs in a process of its own, as it must to mean something.
    """
    task = task_of(model)
    write_bundle(model, workshop)
    output = "last_hidden_state" if task == Task.FEATURE_EXTRACTION else "logits"
    auto_class = TASK_CLASSES[task][0]
    difference = verify(model, workshop, auto_class, output, trust_remote_code=True) if fresh_process else None
    note = "Load it with trust_remote_code=True: it brings its own code."
    return ExportReport(BUNDLE, type(model).__name__, auto_class, workshop, {}, (note,), output, difference)


def export_onnx(model: ZooPreTrainedModel, workshop: Path) -> ExportReport:
    """Write a model as ONNX graphs, and verify it in ONNX Runtime.

    Args:
        model: The model.
        workshop: An empty folder.

    Raises:
        ExportError: When it cannot be traced.
        VerificationError: When ONNX Runtime computes something else.
    """
    from .onnx import check_onnx, write_onnx

    task = task_of(model)
    write_onnx(model, workshop)
    output = "last_hidden_state" if task == Task.FEATURE_EXTRACTION else "logits"
    note = "Run it with `zoo generate` or `zoo evaluate`, or its graphs in any ONNX runtime."
    difference = check_onnx(model, workshop)
    auto_class = TASK_CLASSES[task][0]
    return ExportReport(ONNX, type(model).__name__, auto_class, workshop, {}, (note,), output, difference)


def export_ctranslate2(model: ZooPreTrainedModel, workshop: Path, dtype: str, source: Path | None) -> ExportReport:
    """Write a model for CTranslate2, and verify it there.

    Args:
        model: The model.
        workshop: An empty folder.
        dtype: How weights are stored.
        source: The folder of the saved model, whose tokenizers name the ids.

    Raises:
        ExportError: When CTranslate2 lacks something, or there is no such dtype.
        VerificationError: When it computes something else.
    """
    from .ctranslate2 import check_ctranslate2

    task = task_of(model)
    route, notes = write_ctranslate2_export(model, workshop, dtype, source)
    difference = check_ctranslate2(model, workshop, dtype)
    steps = {step.symmetry.name: step.symmetry.summary for step in route.steps}
    output = "last_hidden_state" if task == Task.FEATURE_EXTRACTION else "log-probabilities"
    stored = "" if dtype == "float32" else f" Weights are stored as {dtype}."
    notes = (f"Run it with `zoo generate`, or in CTranslate2.{stored}", *notes)
    auto_class = TASK_CLASSES[task][0]
    return ExportReport(CTRANSLATE2, type(model).__name__, auto_class, workshop, steps, notes, output, difference)


def write_ctranslate2_export(
    model: ZooPreTrainedModel, folder: Path, dtype: str, tokenizers: Path | None
) -> tuple[Route, tuple[str, ...]]:
    """Write a model for CTranslate2, if its arithmetic is there.

    Args:
        model: The model.
        folder: An empty folder.
        dtype: How weights are stored.
        tokenizers: A folder with the tokenizers whose tokens name the ids.

    Returns:
        How settings and weights changed, and what users should know.

    Raises:
        ExportError: When CTranslate2 lacks something, or there is no such dtype.
    """
    from .ctranslate2 import plan_ctranslate2, write_ctranslate2

    route, obstacles, notes = plan_ctranslate2(model)
    if route is None or obstacles:
        raise ExportError(
            f"{CTRANSLATE2} cannot express this model: {'; '.join(obstacles)}. What works: {what_works(model)}"
        )
    write_ctranslate2(model, folder, route, dtype, tokenizers)
    return route, notes
