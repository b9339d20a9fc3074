"""Tables of docs/performance.md, each between a comment that names the script that wrote it and the next `end`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import torch
import transformers

from zoo.environment import device_name
from zoo.files import write_file

PAGE = Path(__file__).parents[2] / "docs/performance.md"


def described() -> str:
    """Name the machine, the versions and the day."""
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return f"{device_name(torch.device('cpu'))}, {os.cpu_count()} cores, {versions}, {date.today()}"


def to_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown, whose first column is text and whose others are numbers."""
    first, *others = (f"| {' | '.join(line)} |\n" for line in (headings, *rows))
    return "".join([first, f"|---|{'---:|' * (len(headings) - 1)}\n", *others])


def document(part: str, text: str) -> None:
    """Put a text into the page.

    Args:
        part: What the comment before it names.
        text: Ends with a new line.
    """
    page = PAGE.read_text(encoding="utf-8")
    before, after = f"<!-- {part} -->\n", "<!-- end -->"
    pattern = re.compile(f"({re.escape(before)}).*?({re.escape(after)})", re.DOTALL)
    assert pattern.search(page), f"{PAGE} has no part {before}"
    write_file(PAGE, pattern.sub(lambda found: found[1] + text + found[2], page))
