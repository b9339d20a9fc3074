"""The model card of an export: what it is, how to load it, and how far it is from the original."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.models import ZooPreTrainedModel

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

    from .exporting import ExportReport
    from .target import ExportOptions, Target
    from .verification import Difference


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
    """Describe what was compared, and what came out."""
    found = report.difference
    if found is None:
        return "The export was not compared with the original."
    double = "" if found.float64 is None else f", {found.float64:.1e} in float64"
    where = target.run_in("transformer-zoo")
    where = f"{where[0].upper()}{where[1:]}"
    return (
        f"{where} and compared on {found.batches} random {target.compared_on}, `{report.output}` differs from the "
        f"original by at most {found.float32:.1e} in float32{double}, where the largest value is {found.largest:.2g}."
        f"{decoding(found)}{rounding(found)}"
    )


def rounding(found: Difference) -> str:
    cost = found.perplexities
    if cost is None:
        return ""
    return (
        f" On {cost.tokens} tokens that the original wrote by its own probabilities, its perplexity is "
        f"{cost.original:.4g}, that of the rounded weights {cost.rounded:.4g}."
    )


def decoding(found: Difference) -> str:
    ways = {"greedy decoding": found.greedy, "beam search": found.beams}
    same = [way for way, equal in ways.items() if equal]
    other = [way for way, equal in ways.items() if equal is False]
    sentence = f"{' and '.join(same).capitalize()} give{'' if len(same) > 1 else 's'} the same tokens." if same else ""
    differing = f"{' and '.join(other).capitalize()} may give other tokens." if other else ""
    return "".join(f" {text}" for text in (sentence, differing) if text)
