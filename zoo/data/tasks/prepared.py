"""Prepared folders as examples of a task: shards to train on, and texts to evaluate on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from datasets import Dataset, DatasetInfo

from zoo.base.errors import DataError
from zoo.data.corpora.preparing import HELDOUT_FILE, units_of
from zoo.data.corpora.shards import Manifest, TokenRow, read_manifest
from zoo.data.corpora.sources import Piece, parts_of
from zoo.data.tokenizers import Tokenizers, load_tokenizers

from .finding import find_task
from .sources import Splits


class PreparedTexts:
    """Documents of a prepared folder, in place of the data set of texts that other sources have.

    Args:
        folder: The folder.

    Raises:
        DataError: When it is not whole.
    """

    column_names = ("text",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder)
        self.info = DatasetInfo(description=str(folder))

    def __len__(self) -> int:
        return self.manifest.documents

    def select(self, rows: Iterable[int]) -> list[dict[str, str]]:
        """Rows to show: none, as there are no texts."""
        return []

    @cached_property
    def sha256(self) -> str:
        """Hash of all shards."""
        return hashlib.sha256(json.dumps([shard.sha256 for shard in self.manifest.shards]).encode()).hexdigest()

    def row(self, tokenizers: Tokenizers) -> TokenRow:
        """Ids of all documents, of which slices are read by memory map."""
        found = hashlib.sha256(tokenizers.source.backend_tokenizer.to_str().encode()).hexdigest()
        if found != self.manifest.tokenizer:
            raise DataError(
                f"{self.folder} was prepared with another tokenizer; leave the tokenizer out (the folder has its own), "
                "or prepare the data again with this one"
            )
        return self.manifest.row(self.folder)


def prepared_splits(folder: Path, heldout: str | Path | None) -> Splits:
    """Load a prepared folder."""
    if heldout is not None:
        raise DataError(
            f"{folder} is prepared: name the held-out texts at preparation (zoo data prepare --heldout FILE)"
        )
    train, file = PreparedTexts(folder), folder / HELDOUT_FILE
    if not file.is_file():
        raise DataError(f"{folder} has no held-out texts; prepare it again with --heldout FILE")
    texts = [json.loads(line)["text"] for line in file.open(encoding="utf-8")]
    held = Dataset.from_dict({"text": texts, "document": list(range(len(texts)))})
    return Splits(train, held, duplicates=sum(shard.heldout for shard in train.manifest.shards))


SAMPLE_CHARACTERS = 1 << 26
"""Characters that a tokenizer is trained on, at most."""


def tokenizers_for(source: str, tokenizer: str, task: str, *, column: str | None = None) -> Tokenizers:
    """Load or train the tokenizer for a preparation."""
    if Path(tokenizer).is_dir():
        return load_tokenizers(tokenizer)
    _, units, _ = units_of(source, None)
    texts = Dataset.from_dict({"text": list(sampled(units, column))})
    return find_task(task).train_tokenizers(texts, kind=tokenizer)


def sampled(units: Sequence[Sequence[Piece]], column: str | None) -> Iterator[str]:
    """Beginnings of all shards, of equal length."""
    for unit in units:
        left = SAMPLE_CHARACTERS // len(units)
        for part in (part for piece in unit for part in parts_of(piece, column, lambda error: None)):
            yield part.text[:left]
            left -= len(part.text)
            if left <= 0:
                break
