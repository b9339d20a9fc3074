"""The model card of an export: what it is, how to load it, and how far it is from the original."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.models import ZooPreTrainedModel

if TYPE_CHECKING:
    from .report import ExportReport
    from .target import Target
    from .verification import Difference


def write_card(folder: Path, report: ExportReport, model: ZooPreTrainedModel, target: Target) -> None:
    """Write README.md.

    Args:
        folder: Where the export is.
        report: What it did.
        model: The original.
        target: What it was exported to.
    """
    config = model.config
    quirks = f" with the quirks {', '.join(config.quirks)}" if config.quirks else ""
    sections = [
        f"---\nlibrary_name: {target.library}\ntags:\n- transformer-zoo\n---\n",
        f"# {report.class_name}, exported from transformer-zoo\n",
        f"The variant `{config.variant}`{quirks}, exported by transformer-zoo {version('transformer-zoo')}. "
        f"It has {model.num_parameters():,} parameters.\n",
        target.usage(report.auto_class),
    ]
    if report.output == "hidden_states[-2]":
        sections.append(
            "What the original returns as `last_hidden_state` is here `hidden_states[-2]` "
            "(call it with `output_hidden_states=True`): the class has a final norm that the original lacks, "
            "and that norm follows a layer that was added and does nothing.\n"
        )
    sections.append(f"## Exactness\n\n{measured(report, target)}\n")
    if report.transforms:
        changes = "\n".join(f"- `{name}`: {summary}" for name, summary in report.transforms.items())
        sections.append(f"Weights were rewritten by these exact symmetries:\n\n{changes}\n")
    if report.notes:
        sections.append("## Notes\n\n" + "\n".join(f"- {note}" for note in report.notes) + "\n")
    (folder / "README.md").write_text("\n".join(sections), encoding="utf-8")


def measured(report: ExportReport, target: Target) -> str:
    """Say what was compared, and what came out."""
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
    """Say what rounding weights cost.

    Returns:
        A sentence with a space before it, or nothing.
    """
    cost = found.perplexities
    if cost is None:
        return ""
    return (
        f" On {cost.tokens} tokens that the original wrote by its own probabilities, its perplexity is "
        f"{cost.original:.4g}, that of the rounded weights {cost.rounded:.4g}."
    )


def decoding(found: Difference) -> str:
    """Say which decoding gives the same tokens.

    Returns:
        A sentence with a space before it, or nothing.
    """
    ways = {"greedy decoding": found.greedy, "beam search": found.beams}
    same = [way for way, equal in ways.items() if equal]
    other = [way for way, equal in ways.items() if equal is False]
    sentence = f"{' and '.join(same).capitalize()} give{'' if len(same) > 1 else 's'} the same tokens." if same else ""
    differing = f"{' and '.join(other).capitalize()} may give other tokens." if other else ""
    return "".join(f" {text}" for text in (sentence, differing) if text)
