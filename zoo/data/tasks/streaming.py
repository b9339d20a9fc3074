"""Texts that are encoded while they are trained on, without anything on the disk."""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from zoo.base.errors import DataError
from zoo.data.corpora.planning import TextSource
from zoo.data.corpora.shard_worker import document_hash
from zoo.data.corpora.sources import Part, cut, parts_of
from zoo.data.tokenizers import Tokenizers
from zoo.data.tokenizers.encoding import backend_json

from .blocks import ENDLESS, Ids
from .prepared import ShardedTexts, SourceTexts, stop
from .sources import Splits

SAMPLED_SHARDS, SAMPLED_SHARE = 16, 1 / 32
"""Shards by which tokens of a word are estimated, and the part of a tokenizer's sample, 2 Mi characters."""


class StreamedTexts(SourceTexts):
    """Documents of a source that are never written."""

    def __len__(self) -> int:
        return 0

    def tokens_per_word(self, tokenizers: Tokenizers) -> float | None:
        """Average of a sample of the first shards, the ends of documents included."""
        from tokenizers import Tokenizer

        beginning = replace(self.source, units=self.source.units[:SAMPLED_SHARDS])
        documents = list(beginning.sample(SAMPLED_SHARE))
        texts = [part for text in documents for part in cut(text)]
        tokenizer = Tokenizer.from_str(backend_json(tokenizers.source))
        words = sum(len(text.split()) for text in texts)
        ids = sum(len(one.ids) for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        return (ids + len(documents)) / words if words else None

    def prepared(self, tokenizers: Tokenizers, *, progress: bool) -> ShardedTexts:
        return self

    def set_aside(self) -> Splits:
        raise DataError(f"{self.source.name} is streamed, so nothing can be set aside of it to choose a checkpoint by")


class StreamedRow:
    """Ids of documents in a random order, read in slices one after the other.

    A slice before the last one is read from the beginning again, and one after it by reading what is between: so every
    process and every resumed run has the same row. Documents wait in a buffer, from which a random one is taken next;
    the parts of those that are longer than `LONGEST_PART` follow each other where they are read.
    """

    def __init__(self, source: TextSource, tokenizers: Tokenizers, buffer: int, seed: int) -> None:
        self.source, self.buffer, self.seed = source, buffer, seed
        self.tokenizer, self.end = backend_json(tokenizers.source), tokenizers.source.eos_token_id
        self.start, self.held = 0, np.empty(0, np.int64)
        self.stream: Iterator[Ids] | None = None
        self.process = os.getpid()

    def __len__(self) -> int:
        return ENDLESS

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "stream": None, "start": 0, "held": np.empty(0, np.int64)}

    def __getitem__(self, wanted: slice) -> Ids:
        start, stop, _ = wanted.indices(ENDLESS)
        if self.stream is None or start < self.start or self.process != os.getpid():  # a fork shares open files
            self.stream, self.start, self.held = self.ids(), 0, np.empty(0, np.int64)
            self.process = os.getpid()
        while self.start + len(self.held) < stop:
            parts, missing = [self.held], stop - self.start - len(self.held)
            while missing > 0:
                parts.append(next(self.stream))
                missing -= len(parts[-1])
            self.held = np.concatenate(parts)
            self.drop(min(start, self.start + len(self.held)))
        self.drop(start)
        return self.held[: stop - start]

    def drop(self, place: int) -> None:
        """Forget the ids before a place."""
        self.held, self.start = self.held[place - self.start :], place

    def ids(self) -> Iterator[Ids]:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(self.tokenizer)
        heldout = {document_hash(text) for text in self.source.heldout_texts(stop)}
        epoch = 0
        while True:
            found, begun = 0, False  # whether a document has ids and no end
            for part in self.shuffled(random.Random(f"{self.seed} {epoch}")):
                kept = document_hash(part.text) not in heldout
                texts = list(cut(part.text)) if kept else []
                encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
                begun = begun or kept
                ends = [[self.end]] if begun and part.ends else []
                begun = begun and not part.ends
                ids = np.concatenate([np.empty(0, np.int64), *(one.ids for one in encoded), *ends]).astype(np.int64)
                found += len(ids)
                yield ids
            if not found:
                raise DataError(f"{self.source.name} holds no text to train on")
            epoch += 1

    def shuffled(self, order: random.Random) -> Iterator[Part]:
        """Documents of all shards, which are shuffled, through the buffer; the parts of long ones pass it in order."""
        waiting: list[Part] = []
        for unit in order.sample(list(self.source.units), len(self.source.units)):
            pieces = (replace(piece, last=True) for piece in unit)  # a shard ends what goes on in another one
            for part in (part for piece in pieces for part in parts_of(piece, self.source.column, stop)):
                if not (part.begins and part.ends):
                    yield part
                elif len(waiting) < self.buffer:
                    waiting.append(part)
                else:
                    place = order.randrange(self.buffer)
                    yield waiting[place]
                    waiting[place] = part
        order.shuffle(waiting)
        yield from waiting


def is_streamed(examples: Any) -> bool:
    """Whether examples are blocks of a streamed row, which has no end."""
    return isinstance(getattr(examples, "ids", None), StreamedRow)
