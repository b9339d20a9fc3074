"""A recording that goes on: what was measured so far, in a file that is written whole after every piece."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.base.files import write_file

CHANGING = {"date", "limit", "bandwidth"}
"""Facts that may differ between the pieces of a recording."""


def begun(file: Path | None, about: Mapping[str, Any], kept: str = "rows") -> dict[str, Any]:
    """Read what is recorded already, if anything is kept, and end the program where that is of another setting."""
    if file is None or not file.exists():
        return {"about": about, kept: {}}
    found = json.loads(file.read_text(encoding="utf-8"))
    different = sorted(key for key in about.keys() - CHANGING if found["about"].get(key) != about[key])
    if different:
        sys.exit(f"{file} is of another {' and '.join(different)}; choose another --output")
    return found


def keep(file: Path | None, found: Mapping[str, Any]) -> None:
    """Write it down, unless nothing is kept."""
    if file is not None:
        write_file(file, json.dumps(found, indent=1) + "\n")
