"""Short names for what decides a run's results: the same content has the same one."""

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
    """Make a short name for the contents of files, each by its name."""
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(f"{name}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
