"""Exports: models of the zoo as folders that plain transformers, or another engine, loads, with a model card."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.base.errors import NameCollisionError
from zoo.base.folders import check_output, written_whole
from zoo.base.manifest import MANIFEST_FILE
from zoo.building.quantizing import Int8Model
from zoo.fast.int8 import refuse
from zoo.models import TASK_CLASSES, ZooPreTrainedModel
from zoo.models.wrapped import zoo_model

from .errors import ExportError
from .native.declared import NATIVE, UnknownNativeError
from .native.files import carry_tokenizer, folder_of, require_same_tokens
from .native.writing import NativeTarget
from .opening import open_folder
from .planning import nearest, plan_engines, plan_export
from .target import TARGETS, ExportOptions, Target, TargetPlan, check_dtype, check_page
from .verification import Difference, not_compared
from .weights import longest, task_of, without_further_tokens

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData


@dataclass(frozen=True)
class ExportReport:
    """Result of an export."""

    target: str
    class_name: str  # The class of transformers that the folder holds
    auto_class: str  # The Auto class that loads it
    folder: Path  # Where it is
    transforms: dict[str, str]  # The symmetries that were applied, each with what it did
    notes: tuple[str, ...]  # Remarks for users
    output: str  # Where the class returns what the model computes
    difference: Difference | None  # How far it is from the original, None where that was not measured
    files: tuple[str, ...] = ()  # The files of the folder

    def to_dict(self) -> dict[str, Any]:
        fields = {**asdict(self), "folder": str(self.folder), "notes": list(self.notes), "files": list(self.files)}
        return {name.removesuffix("_name"): value for name, value in fields.items()}


def export(
    model: ZooPreTrainedModel | str | os.PathLike[str],
    out: str | os.PathLike[str],
    target: str | None = None,
    *,
    dtype: str | None = None,
    page: bool = False,
    force: bool = False,
    fresh_process: bool = True,
) -> ExportReport:
    """Write a model in a form that needs no zoo.

    ```python
    zoo.export("my-model", "native")  # the first class of transformers that expresses it exactly
    zoo.export(model, "marian", "marian")
    zoo.export(model, "bundle", "bundle")  # with its own code, for trust_remote_code=True
    zoo.export(model, "onnx", "onnx")  # graphs for ONNX Runtime
    zoo.export(model, "ctranslate2", "ctranslate2", dtype="int8")
    ```

    The export is loaded where the zoo cannot be imported (or in its engine) and compared with the model: outputs on
    random padded inputs and on texts up to the last position, and tokens of greedy decoding and of beam search; a note
    names lengths that are too long for a large model. The model card has the measured differences.
    A failed export leaves nothing.

    Args:
        model: A model; or the folder or repository of a saved one, of the zoo or of a class of transformers that can be
            converted. Its tokenizer is copied.
        out: The folder to write.
        target: A model type of transformers ("marian", "bert", ...), or one of `zoo.converters.TARGETS`: "bundle",
            "onnx", "ctranslate2", ...; by default the first exact model type.
        page: Whether to add a page that runs the model in a browser, where the target has one ("transformers.js").
        dtype: For targets that can round weights how they are stored ("float32", "int8", ...), by default as they are.
            Only weights that are stored as they are have to be equal; for others the card gives the difference.
        force: Whether a saved model in the folder may be replaced.
        fresh_process: Whether the comparison runs in its own process; without, it is quicker and weaker.

    Raises:
        UnknownNameError: When the target is unknown.
        ExportError: When the target is not exact; the message names the reason and other targets.
        VerificationError: When the export does not compute what the model does.
    """
    folder = Path(out)
    check_output(folder, force=force)
    named = find_target(target) if target is not None else None
    check_dtype(named, dtype)
    check_page(named, page)
    source: Path | None = None
    if isinstance(model, (str, os.PathLike)):
        source = folder_of(model)
        model = open_folder(source)
    model = zoo_model(model, ExportError)
    if isinstance(model, Int8Model):
        refuse("be exported")
    model, left_out = (model, ()) if target == "bundle" else without_further_tokens(model)
    with written_whole(folder, force=force) as workshop:
        options = ExportOptions(dtype, source, fresh_process, page)
        report = export_as(choose(model, target), model, workshop, options)
        report = replace(report, notes=(*report.notes, *left_out))
        if source is not None:
            carry_tokenizer(source, workshop, longest(model))
            require_same_tokens(source, workshop)
        write_card(workshop, report, model, find_target(report.target), options)
        written = sorted(path.relative_to(workshop).as_posix() for path in workshop.rglob("*") if path.is_file())
        files = tuple(name for name in written if name != MANIFEST_FILE)
    return replace(report, folder=folder, files=files)


def find_target(name: str) -> Target:
    if name in TARGETS and name in NATIVE:
        raise NameCollisionError(
            f"target {name!r} of {TARGETS.origin(name)} has the name of a model type of transformers, which is a "
            "target already; register it by another name"
        )
    if name in TARGETS:
        return TARGETS.get(name)
    if name not in NATIVE:
        if kin := [other for other in NATIVE if name in NATIVE.get(other).model_types]:
            raise ExportError(f"target {name!r} was given, a model type with {kin[0]}'s code: give target {kin[0]!r}")
        raise UnknownNativeError(name, [*TARGETS, *NATIVE], kind="target")
    return NativeTarget(NATIVE.get(name))


def choose(model: ZooPreTrainedModel, target: str | None) -> TargetPlan:
    if target is not None:
        plan = find_target(target).plan(model)
        if plan.exact:
            return plan
        others = plan_export(model, [name for name in NATIVE if name != target])
        exact = ", ".join([*(other.target for other in others if other.exact), what_works(model, target)])
        raise ExportError(f"{target} cannot express this model: {plan.why_not}. What works: {exact}")
    plans = plan_export(model)
    if plans[0].exact:
        return plans[0]
    near = nearest(plans)
    why = f"; the nearest is {near.target}: {near.why_not}" if near is not None else ""
    raise ExportError(f"no class of transformers expresses this model exactly{why}. What works: {what_works(model)}")


def what_works(model: ZooPreTrainedModel, refused: str | None = None) -> str:
    """Name the exports that are no class of transformers, but for one that is known not to work."""
    plans = [plan.target for plan in plan_engines(model, [name for name in TARGETS if name != refused]) if plan.exact]
    sure = [name for name in plans if not TARGETS.get(name).by_trial]
    tried = [name for name in plans if TARGETS.get(name).by_trial]
    return "; ".join([", ".join(sure), *(f"{name} is traced and compared when it is tried" for name in tried)])


def export_as(plan: TargetPlan, model: ZooPreTrainedModel, workshop: Path, options: ExportOptions) -> ExportReport:
    target = find_target(plan.target)
    target.write(model, workshop, plan, options)
    difference = target.check(model, workshop, plan, options)
    return ExportReport(
        target=plan.target,
        class_name=plan.class_name or type(model).__name__,
        auto_class=TASK_CLASSES[task_of(model)][0],
        folder=workshop,
        transforms={step.symmetry.name: step.symmetry.summary for step in plan.route.steps} if plan.route else {},
        notes=(*target.advice(task_of(model), options), *target.notes(plan, options), *not_compared(model)),
        output=target.output(model, plan),
        difference=difference,
    )


def write_card(
    folder: Path, report: ExportReport, model: ZooPreTrainedModel, target: Target, options: ExportOptions
) -> None:
    config = model.config
    quirks = f" with the quirks {', '.join(config.quirks)}" if config.quirks else ""
    exact = not target.rounding(options)
    data, records = recorded(model, target, options.source, exact=exact)
    sections = [
        f"---\n{data.to_yaml()}\n---\n",
        f"# {report.class_name}, exported from transformer-zoo\n",
        f"The variant `{config.variant}`{quirks}, exported by transformer-zoo {version('transformer-zoo')}. "
        f"It has {model.num_parameters():,} parameters.\n",
        target.usage(report.auto_class),
    ]
    if report.output == "hidden_states[-2]":
        sections.append(
            "The original's `last_hidden_state` is `hidden_states[-2]` here "
            "(call it with `output_hidden_states=True`): the class has a final norm that the original lacks, "
            "and that norm follows a layer that was added and does nothing.\n"
        )
    sections.append(f"## Exactness\n\n{measured(report, target)}\n")
    if report.transforms:
        changes = "\n".join(f"- `{name}`: {summary}" for name, summary in report.transforms.items())
        sections.append(f"Weights were rewritten by these exact symmetries:\n\n{changes}\n")
    sections += [*target.sections(folder), *records]
    if report.notes:
        sections.append("## Notes\n\n" + "\n".join(f"- {note}" for note in report.notes) + "\n")
    (folder / "README.md").write_text("\n".join(sections), encoding="utf-8")


def recorded(
    model: ZooPreTrainedModel, target: Target, source: Path | None, *, exact: bool
) -> tuple[ModelCardData, list[str]]:
    """Metadata for the Hub, and sections on training data, scores and limits, by the records of the original."""
    from huggingface_hub import ModelCardData

    from zoo.hub.cards import as_text, auto_class_of, eval_result
    from zoo.hub.records import find_results, recorded_license, recorded_limits, recorded_origin

    config = model.config
    _, pipeline = auto_class_of({"architectures": [type(model).__name__]})
    if getattr(config, "classifier_positions", None) or (pipeline == "fill-mask" and config.masked_next_token):
        pipeline = None
    results = [eval_result(result, pipeline) for result in find_results(source)] if source is not None else []
    data = ModelCardData(
        license=None if source is None else recorded_license(source),
        library_name=target.library,
        pipeline_tag=pipeline,
        tags=["transformer-zoo", config.variant],
        model_name=config.variant,
        eval_results=results if exact and results else None,
    )
    sections = []
    if source is not None and (origin := recorded_origin(source)):
        lines = "".join(f"- {name}: {as_text(value)}\n" for name, value in origin.items())
        sections.append(f"## Training\n\n{lines}")
    if results:
        rows = "".join(
            f"| {as_text(one.dataset_name)} | {as_text(one.metric_name)} | {one.metric_value} |\n" for one in results
        )
        of_original = "" if exact else " of the original, before its weights were rounded"
        sections.append(f"## Scores{of_original}\n\n| Data | Metric | Value |\n|---|---|---|\n{rows}")
    if source is not None and (limits := recorded_limits(source)):
        sections.append("## Limits\n\n" + "".join(f"- {as_text(limit)}\n" for limit in limits))
    return data, sections


def measured(report: ExportReport, target: Target) -> str:
    found = report.difference
    if found is None:
        return "The export was not compared with the original."
    double = "" if found.float64 is None else f", {found.float64:.1e} in float64"
    where = target.run_in("transformer-zoo")
    text = (
        f"{where[0].upper()}{where[1:]} and compared on {found.batches} random {target.compared_on}, `{report.output}` "
        f"differs from the original by at most {found.float32:.1e} in float32{double}, where the largest value is "
        f"{found.largest:.2g}.{decoding(found)}"
    )
    if (cost := found.perplexities) is not None:
        text += (
            f" On {cost.tokens} tokens that the original wrote by its own probabilities, its perplexity is "
            f"{cost.original:.4g}, that of the rounded weights {cost.rounded:.4g}."
        )
    return text


def decoding(found: Difference) -> str:
    ways = {"greedy decoding": found.greedy, "beam search": found.beams}
    same = [way for way, equal in ways.items() if equal]
    other = [way for way, equal in ways.items() if equal is False]
    sentence = f"{' and '.join(same).capitalize()} give{'' if len(same) > 1 else 's'} the same tokens." if same else ""
    differing = f"{' and '.join(other).capitalize()} may give other tokens." if other else ""
    return "".join(f" {text}" for text in (sentence, differing) if text)
