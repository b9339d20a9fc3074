"""What goes to the Hub besides the checkpoint itself: its code, and its export to a class of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUNDLE = "bundle"
NATIVE_REVISION = "native"
"""The branch that holds the native export."""


@dataclass(frozen=True)
class Exported:
    """An export, ready to be pushed.

    Args:
        folder: Where it is.
        target: What it was exported to.
        auto_class: The Auto class that loads it.
        difference: How far its outputs are from the checkpoint's, None where that was not measured.
    """

    folder: Path
    target: str
    auto_class: str
    difference: float | None

    def for_card(self) -> Mapping[str, Any]:
        """Tell a model card what was verified."""
        if self.difference is None:
            return {"target": self.target, "verified": "no", "difference": "not measured"}
        verified = "yes, without the zoo, on random padded batches"
        return {"target": self.target, "verified": verified, "difference": f"{self.difference:.1e} in float32"}


def export_checkpoint(folder: Path, out: Path, target: str | None) -> Exported:
    """Export a checkpoint."""
    from zoo.converters import export

    report = export(folder, out, target)
    difference = None if report.difference is None else float(report.difference.float32)
    return Exported(out, report.target, report.auto_class, difference)
