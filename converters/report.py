"""What an export did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .verification import Difference


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
