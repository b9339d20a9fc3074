"""Texts that are read from token shards: prepared folders, and sources that are prepared when they are used."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets import DatasetInfo

from zoo.base.errors import ConfigError, DataError
from zoo.data.corpora.getting import made_once, place_of
from zoo.data.corpora.planning import SHARD_BYTES, TextSource, find_source
from zoo.data.corpora.preparing import HELDOUT_FILE, Preparation
from zoo.data.corpora.shards import Manifest, TokenRow, read_manifest
from zoo.data.corpora.sources import COMPRESSED, HELDOUT_NAMES, HUB, KINDS, TRAIN_NAMES, kind_of
from zoo.data.tokenizers import Tokenizers, load_tokenizers
from zoo.data.tokenizers.encoding import backend_json

from .libraries import is_saved_dataset
from .reading import documents
from .sources import HELDOUT_SHARE, Splits, find_file
from .tables import Column
from .task import find_task

MOST_ASIDE = 1 << 20  # Most tokens that are set aside to choose a checkpoint by


class ShardedTexts(ABC):
    """Documents in shards, in place of the data set of texts that smaller sources have."""

    column_names = ("text",)
    description: str  # Where they come from
    duplicates = 0  # Number of documents that were left out because they are held out as well, as far as that is known

    @property
    @abstractmethod
    def sha256(self) -> str:
        """Hash of the content."""

    @property
    def info(self) -> DatasetInfo:
        """Where they come from, as data sets have it."""
        return DatasetInfo(description=self.description)

    def tokens_per_word(self, tokenizers: Tokenizers) -> float | None:
        """Average number of tokens of a word, None where words are not counted."""
        return None

    @abstractmethod
    def prepared(self, tokenizers: Tokenizers, *, progress: bool) -> ShardedTexts:
        """Encode them, once for each tokenizer."""

    def set_aside(self) -> Splits:
        """Divide them: the last tokens choose between models, the others are trained on."""
        raise TypeError(f"{self.description} is not prepared")

    @abstractmethod
    def tokenizers(self, train: Callable[[Any], Tokenizers], options: Mapping[str, Any]) -> Tokenizers:
        """Train tokenizers on a sample, once for each kind of options."""

    def select(self, rows: Iterable[int]) -> list[dict[str, str]]:
        """Rows to show: none, as the texts are not kept."""
        return []


class PreparedTexts(ShardedTexts):
    """Documents of a prepared folder, from the token `start`, that of a document, to `stop`."""

    def __init__(self, folder: Path, start: int = 0, stop: int | None = None) -> None:
        self.folder, self.start, self.stop = folder, start, stop
        self.manifest: Manifest = read_manifest(folder)
        self.description, self.duplicates = str(folder), self.manifest.duplicates

    def __len__(self) -> int:
        return self.manifest.documents

    def tokens_per_word(self, tokenizers: Tokenizers) -> float | None:
        """Average of all documents, those that are set aside included."""
        return self.manifest.tokens / self.manifest.words if self.manifest.words else None

    @cached_property
    def sha256(self) -> str:
        """Hash of all shards, and of the part of them."""
        part = [self.start, self.stop] if self.start or self.stop is not None else []
        shards = [shard.sha256 for shard in self.manifest.shards]
        return hashlib.sha256(json.dumps([*shards, *part]).encode()).hexdigest()

    def row(self, tokenizers: Tokenizers) -> TokenRow:
        """Ids of all documents, read in slices by memory map."""
        found = hashlib.sha256(backend_json(tokenizers.source).encode()).hexdigest()
        if found != self.manifest.tokenizer:
            raise DataError(
                f"{self.folder} was prepared with another tokenizer; leave the tokenizer out (the folder has its own), "
                "or prepare the data again with this one"
            )
        return self.manifest.row(self.folder).part(self.start, self.stop)

    def prepared(self, tokenizers: Tokenizers, *, progress: bool) -> PreparedTexts:
        return self

    def tokenizers(self, train: Callable[[Any], Tokenizers], options: Mapping[str, Any]) -> Tokenizers:
        return load_tokenizers(self.folder)

    @property
    def most_aside(self) -> int:
        """Number of tokens that are set aside, at most."""
        return min(int(len(self.manifest.row(self.folder).part(self.start, self.stop)) * HELDOUT_SHARE), MOST_ASIDE)

    def set_aside(self, tokens: int | None = None) -> Splits:
        row = self.manifest.row(self.folder).part(self.start, self.stop)
        border = row.document_end(len(row) - (self.most_aside if tokens is None else tokens))
        if not 0 < border < len(row):
            raise DataError(f"{self.folder} has {len(row)} tokens, too few to set some aside to choose a checkpoint by")
        border += self.start
        places = ((self.start, border), (border, self.stop))
        parts: list[Any] = [PreparedTexts(self.folder, *place) for place in places]
        return Splits(*parts)


class SourceTexts(ShardedTexts):
    """Documents of a source that are encoded into shards once a tokenizer exists."""

    def __init__(self, source: TextSource) -> None:
        self.source, self.description = source, source.name

    @property
    def sha256(self) -> str:
        """Hash of the files; of a data set on the Hub, of its name."""
        return self.source.sha256

    def prepared(self, tokenizers: Tokenizers, *, progress: bool) -> ShardedTexts:
        return PreparedTexts(Preparation(self.source, tokenizers).kept(progress=progress))

    def tokenizers(self, train: Callable[[Any], Tokenizers], options: Mapping[str, Any]) -> Tokenizers:
        return trained_once(train, self.source.sample(), [self.source.planned], options)


def trained_once(
    train: Callable[[Any], Tokenizers], texts: Iterable[str], sources: Sequence[Any], options: Mapping[str, Any]
) -> Tokenizers:
    place = place_of("tokenizer", [*sources, dict(options)])
    return load_tokenizers(made_once(place, lambda folder: train(texts).save(folder)))


def prepared_splits(folder: Path, heldout: str | Path | None) -> Splits:
    if heldout is not None:
        problem = f"{folder} is prepared"
        raise DataError(f"{problem}: name the held-out texts at preparation (zoo data prepare --heldout FILE)")
    train, file = PreparedTexts(folder), folder / HELDOUT_FILE
    if not file.is_file():
        raise DataError(f"{folder} has no held-out texts; prepare it again with --heldout FILE")
    texts = [json.loads(line)["text"] for line in file.open(encoding="utf-8")]
    return Splits(train, documents(texts), duplicates=train.duplicates)


def needs_shards(data: str) -> bool:
    """Whether texts are read from shards, as they are many or nothing else reads them."""
    if data.startswith(HUB):
        return True
    path = Path(data)
    if path.is_file():
        return kind_of(path) in KINDS and (path.suffix in COMPRESSED or path.stat().st_size > SHARD_BYTES)
    if not path.is_dir() or is_saved_dataset(path):
        return False
    try:
        files = [find_file(path, names) for names in (TRAIN_NAMES, HELDOUT_NAMES)]
    except DataError:
        return any(file.is_file() and kind_of(file) in KINDS for file in path.rglob("*"))
    return needs_shards(str(files[0]))


def source_splits(
    data: str, heldout: str | Path | None, column: str | None, made: Callable[[TextSource], ShardedTexts] = SourceTexts
) -> Splits:
    """Find the texts of a source, and read those that are held out, by default the source's own."""
    source = find_source(data, heldout=heldout, column=column)
    held = documents(source.heldout_texts(stop))
    if not any(text.strip() for text in held["text"]):
        raise DataError(f"{data} has nothing to hold out; name texts to evaluate on (--heldout)")
    train: Any = made(source)
    return Splits(train, held, is_divided=source.is_divided)


def one_column(columns: Iterable[Column] | None) -> str | None:
    names = list(columns or ())
    if len(names) > 1 or any(not isinstance(name, str) for name in names):
        raise ConfigError(f"columns={names} is not valid for texts in shards; give the name of one column")
    return str(names[0]) if names else None


def stop(error: DataError) -> None:
    raise error


def tokenizers_for(source: str, tokenizer: str, task: str, **found: Any) -> Tokenizers:
    """Load the tokenizer of a folder, or train one of a kind, for a preparation."""
    if Path(tokenizer).is_dir():
        return load_tokenizers(tokenizer)
    texts: Any = SourceTexts(find_source(source, **found))
    return find_task(task).train_tokenizers(texts, kind=tokenizer)
