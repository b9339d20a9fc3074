"""Tables of docs/performance.md, each between a comment that names the script that wrote it and the next `end`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import torch
import transformers

from zoo.analysis.environment import device_name
from zoo.base.files import replace_part, write_file

PAGE = Path(__file__).parents[2] / "docs/performance.md"


def described() -> str:
    """Name the machine, the versions and the day."""
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return f"{device_name(torch.device('cpu'))}, {os.cpu_count()} cores, {versions}, {date.today()}"


def to_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown; the first column is text, the others are numbers."""
    first, *others = (f"| {' | '.join(line)} |\n" for line in (headings, *rows))
    return "".join([first, f"|---|{'---:|' * (len(headings) - 1)}\n", *others])


def document(part: str, text: str) -> None:
    """Put a text, which ends with a new line, into the part of the page that a comment names."""
    write_file(PAGE, replace_part(PAGE.read_text(encoding="utf-8"), part, text))
