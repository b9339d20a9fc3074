"""The files of a run, and how they are written."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

JOB = "job.json"
"""What to do."""

RESULT = "result.json"
"""What came out, or what went wrong."""

QUESTIONS = "probe.json"
"""What the model was asked before it was saved."""

ANSWERS = "probe.safetensors"
"""What it answered."""

CHECKPOINT = "model"
"""The folder of the checkpoint."""

RESULTS = "results.json"
"""What a comparison found, in its folder."""


def write_json(file: Path, value: Any) -> Path:
    """Write JSON whole or not at all.

    Args:
        file: The file.
        value: Plain data.

    Returns:
        The file.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, prefix=".", delete=False) as stream:
        json.dump(value, stream, indent=2, ensure_ascii=False)
        stream.write("\n")
    os.chmod(stream.name, 0o644)
    os.replace(stream.name, file)
    return file
