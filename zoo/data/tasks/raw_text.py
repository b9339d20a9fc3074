"""Text as it stands in a file, cut nowhere but where a tokenizer would cut it anyway."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zoo.base.errors import DataError
from zoo.data.corpora.cutting import cut

from .reading import read_lines

if TYPE_CHECKING:
    from datasets import Dataset

TEXT_SUFFIX = ".txt"


def read_text(path: str | Path) -> str:
    """Read a whole text."""
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{file} is not a file")
    text = "".join(line for _, line in read_lines(file))
    if not text.strip():
        raise DataError(f"{file} is empty")
    return text


def in_parts(text: str) -> Dataset:
    """Cut a long text so that no tokenizer has to take it at once."""
    from datasets import Dataset

    parts = list(cut(text))
    return Dataset.from_dict({"text": parts, "document": [0] * len(parts)})
