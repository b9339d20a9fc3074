"""The model card of an export: what it is, how to load it, and how far it is from the original."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.models import ZooPreTrainedModel

if TYPE_CHECKING:
    from .exporting import ExportReport


def write_card(folder: Path, report: ExportReport, model: ZooPreTrainedModel) -> None:
    """Write README.md.

    Args:
        folder: The export.
        report: What was done.
        model: The original.
    """
    config = model.config
    quirks = f" with the quirks {', '.join(config.quirks)}" if config.quirks else ""
    trust = ", trust_remote_code=True" if report.target == "bundle" else ""
    sections = [
        "---\nlibrary_name: transformers\ntags:\n- transformer-zoo\n---\n",
        f"# {report.class_name}, exported from transformer-zoo\n",
        f"The variant `{config.variant}`{quirks}, exported by transformer-zoo {version('transformer-zoo')}. "
        f"It has {model.num_parameters():,} parameters.\n",
        "```python\n"
        f"from transformers import {report.auto_class}\n\n"
        f'model = {report.auto_class}.from_pretrained("path/to/this/folder"{trust})\n'
        "```\n",
    ]
    if report.output == "hidden_states[-2]":
        sections.append(
            "What the original returns as `last_hidden_state` is here `hidden_states[-2]` "
            "(call it with `output_hidden_states=True`): the class has a final norm that the original lacks, "
            "and that norm follows a layer that was added and does nothing.\n"
        )
    sections.append(f"## Exactness\n\n{measured(report)}\n")
    if report.transforms:
        changes = "\n".join(f"- `{name}`: {summary}" for name, summary in report.transforms.items())
        sections.append(f"Weights were rewritten by these exact symmetries:\n\n{changes}\n")
    if report.notes:
        sections.append("## Notes\n\n" + "\n".join(f"- {note}" for note in report.notes) + "\n")
    (folder / "README.md").write_text("\n".join(sections), encoding="utf-8")


def measured(report: ExportReport) -> str:
    """Say what was compared, and what came out.

    Args:
        report: What was done.

    Returns:
        A paragraph.
    """
    found = report.difference
    if found is None:
        return "The export was not compared with the original."
    double = "" if found.float64 is None else f", {found.float64:.1e} in float64"
    greedy = " Greedy decoding gives the same tokens." if found.greedy else ""
    return (
        f"Loaded without transformer-zoo and compared on {found.batches} random batches (with and without padding), "
        f"`{report.output}` differs from the original by at most {found.float32:.1e} in float32{double}, where the "
        f"largest value is {found.largest:.2g}.{greedy}"
    )
