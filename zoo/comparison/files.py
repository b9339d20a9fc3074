"""Files of a comparison, and hashes of what decides the results of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def content_hash(content: Any) -> str:
    """Make a short name for plain data: 16 hexadecimal digits, others for other data."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_of_files(folder: Path) -> str:
    """Make a short name for the tokenizers of a folder."""
    files = (file for file in folder.rglob("*.json") if file.is_file())  # without weights
    return digest_of_named({file.relative_to(folder).as_posix(): file for file in files})


def digest_of_named(files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(f"{name}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


RESULTS = "results.json"  # Results of a comparison, in its folder
PLAN = "comparison.json"  # Plan of a comparison, in its folder
TOKENIZER = "tokenizer"  # The tokenizer that all variants share, in the comparison's folder
RECIPE = "recipe.json"  # The recipe of a comparison that no file holds, in the comparison's folder
JOB = "job.json"  # Job of a run, in its folder
RESULT = "result.json"  # Its outcome, or its error
QUESTIONS, ANSWERS = "probe.json", "probe.safetensors"  # Inputs and outputs of its model before saving
RELOADED = "reloaded.json"  # Outputs of the saved model in another process
CHECKPOINT = "model"  # The folder of the model
LOCK = ".lock"  # Held by the process that writes a comparison's folder, or a run's


def plain(value: Any) -> Any:
    """Turn a value into what it is after it has been written and read; what JSON does not know becomes text."""
    return json.loads(json.dumps(value, default=str))
