"""Long texts, cut where a tokenizer would cut them anyway."""

from __future__ import annotations

import re
from collections.abc import Iterator

BORDER = re.compile(r"(?<=\S)\n(?=\S)")
"""A single line break: pre-tokenizers end a piece after it, while of several they may split off the last."""

PART_LENGTH = 1 << 16  # Characters after which a part of a long text ends at the next chance


def cut(text: str) -> Iterator[str]:
    """Cut a text where no token reaches across."""
    begin = 0
    while border := BORDER.search(text, begin + PART_LENGTH - 1):
        yield text[begin : border.end()]
        begin = border.end()
    if begin < len(text):
        yield text[begin:]
