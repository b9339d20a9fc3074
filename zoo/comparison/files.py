"""The files of a comparison and of its runs, and the lock that keeps two commands apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zoo.base.files import read_json, write_file

RESULTS = "results.json"
"""Results of a comparison, in its folder."""

PLAN = "comparison.json"
"""Plan of a comparison, in its folder."""

TOKENIZER = "tokenizer"
"""The tokenizer that all variants share, in the comparison's folder."""

RECIPE = "recipe.json"
"""The recipe of a comparison that no file holds, in the comparison's folder."""

JOB = "job.json"
"""Job of a run, in its folder."""

RESULT = "result.json"
"""Its outcome, or its error."""

QUESTIONS, ANSWERS = "probe.json", "probe.safetensors"
"""Inputs and outputs of its model before saving."""

RELOADED = "reloaded.json"
"""Outputs of the saved model in another process."""

CHECKPOINT = "model"
"""The folder of the model."""

LOCK = ".lock"
"""Held by the process that writes a comparison's folder, or a run's."""


def write_json(file: Path, value: Any) -> Path:
    """Write plain data as JSON, whole or not at all."""
    write_file(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    return file


def read_json_or_none(file: Path) -> Any:
    """Read JSON; None where there is no such file, or it is no JSON."""
    try:
        return read_json(file)
    except (OSError, ValueError):
        return None


def plain(value: Any) -> Any:
    """Turn a value into what it is after it has been written and read; what JSON does not know becomes text."""
    return json.loads(json.dumps(value, default=str))
