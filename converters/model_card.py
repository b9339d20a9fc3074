"""The model card of an export: what it is, how to load it, and how far it is from the original."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.models import ZooPreTrainedModel

if TYPE_CHECKING:
    from .report import ExportReport
    from .verification import Difference

ENGINES = ("onnx", "ctranslate2")
"""Targets that are run by engines of their own."""


def write_card(folder: Path, report: ExportReport, model: ZooPreTrainedModel) -> None:
    """Write README.md."""
    config = model.config
    quirks = f" with the quirks {', '.join(config.quirks)}" if config.quirks else ""
    library = report.target if report.target in ENGINES else "transformers"
    sections = [
        f"---\nlibrary_name: {library}\ntags:\n- transformer-zoo\n---\n",
        f"# {report.class_name}, exported from transformer-zoo\n",
        f"The variant `{config.variant}`{quirks}, exported by transformer-zoo {version('transformer-zoo')}. "
        f"It has {model.num_parameters():,} parameters.\n",
        usage(report),
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


def usage(report: ExportReport) -> str:
    """Say how to load an export.

    Returns:
        A block of code.
    """
    if report.target in ENGINES:
        return f"```bash\npip install 'transformer-zoo[{report.target}]'\nzoo generate path/to/this/folder TEXT\n```\n"
    trust = ", trust_remote_code=True" if report.target == "bundle" else ""
    return (
        "```python\n"
        f"from transformers import {report.auto_class}\n\n"
        f'model = {report.auto_class}.from_pretrained("path/to/this/folder"{trust})\n'
        "```\n"
    )


def measured(report: ExportReport) -> str:
    """Say what was compared, and what came out."""
    found = report.difference
    if found is None:
        return "The export was not compared with the original."
    double = "" if found.float64 is None else f", {found.float64:.1e} in float64"
    where = {"onnx": "Run in ONNX Runtime", "ctranslate2": "Run in CTranslate2"}.get(
        report.target, "Loaded without transformer-zoo"
    )
    inputs = "inputs" if report.target == "ctranslate2" else "batches (with and without padding)"
    return (
        f"{where} and compared on {found.batches} random {inputs}, `{report.output}` differs from the original by at "
        f"most {found.float32:.1e} in float32{double}, where the largest value is {found.largest:.2g}.{decoding(found)}"
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
