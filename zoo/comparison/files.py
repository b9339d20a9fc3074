"""The files of a comparison and of its runs, and how they are written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RESULTS = "results.json"
"""What a comparison found, in its folder."""

PLAN = "comparison.json"
"""What is compared, in the comparison's folder."""

TOKENIZER = "tokenizer"
"""The tokenizer that all variants share, in the comparison's folder."""

JOB = "job.json"
"""What a run is told, in its folder."""

RESULT = "result.json"
"""What came out of it, or what went wrong."""

QUESTIONS = "probe.json"
"""What its model was asked before it was saved."""

ANSWERS = "probe.safetensors"
"""What it answered."""

RELOADED = "reloaded.json"
"""What it answered in another process."""

CHECKPOINT = "model"
"""The folder of the model."""

LOCK = ".lock"
"""Which only one process at a time can hold."""


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


def read_json(file: Path) -> Any:
    """Read JSON.

    Args:
        file: The file.

    Returns:
        Plain data, None where there is no such file, or it is no JSON.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Keep other processes out of a folder; the end of this one, however it comes, lets them in.

    Args:
        folder: The folder, which is made where it is not there.
        wait: Whether to wait for those that are in it.

    Yields:
        Whether it is ours, which it always is on systems without such locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows
        yield True
        return
    with open(folder / LOCK, "w", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks
            pass
        yield True


def plain(value: Any) -> Any:
    """Turn a value into what it is after it has been written and read.

    Args:
        value: What JSON can hold, or is written as a text.

    Returns:
        Plain data.
    """
    return json.loads(json.dumps(value, default=str))
