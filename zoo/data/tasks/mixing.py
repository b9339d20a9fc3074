"""Several sources of text that are trained on in given shares of tokens: "books=0.7+letters=0.3"."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from zoo.base.errors import DataError
from zoo.data.corpora.planning import find_source, resolved
from zoo.data.corpora.shards import is_prepared

from .prepared import PreparedTexts, ShardedTexts, SourceTexts, stop, trained_once
from .reading import documents
from .sources import Splits

if TYPE_CHECKING:
    from zoo.data.tokenizers import Tokenizers

PERIOD = 10_000  # Blocks after which the order of sources begins again; shares are met to one part of it

Numbers = npt.NDArray[np.int64]


class MixedTexts(ShardedTexts):
    """Documents of several sources, with `shares` of their tokens that add up to 1."""

    def __init__(self, parts: Mapping[str, Any], shares: Sequence[float]) -> None:
        self.parts, self.shares = dict(parts), list(shares)
        self.description = ", ".join(parts)
        self.duplicates = sum(part.duplicates for part in parts.values())

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts.values() if isinstance(part, PreparedTexts))

    @cached_property
    def sha256(self) -> str:
        parts = [part.sha256 for part in self.parts.values()]
        return hashlib.sha256(json.dumps([parts, self.shares]).encode()).hexdigest()

    def tokens_per_word(self, tokenizers: Tokenizers) -> float | None:
        """Average of all sources in their shares."""
        parts = [part.tokens_per_word(tokenizers) for part in self.parts.values()]
        words = [share / part for share, part in zip(self.shares, parts, strict=True) if part]
        return 1 / sum(words) if len(words) == len(parts) else None

    def prepared(self, tokenizers: Tokenizers, *, progress: bool) -> MixedTexts:
        made = {name: part.prepared(tokenizers, progress=progress) for name, part in self.parts.items()}
        return MixedTexts(made, self.shares)

    def tokenizers(self, train: Callable[[Any], Tokenizers], options: Mapping[str, Any]) -> Tokenizers:
        sources = [part.source for part in self.parts.values() if isinstance(part, SourceTexts)]
        texts = (text for one, share in zip(sources, self.shares, strict=True) for text in one.sample(share))
        return trained_once(train, texts, [self.shares, *(one.planned for one in sources)], options)

    def set_aside(self) -> Splits:
        """Divide every source, to one document so that the shares are those of the loss that chooses between models."""
        most = min(part.most_aside / share for part, share in zip(self.parts.values(), self.shares, strict=True))
        divided = {
            name: tuple(part.set_aside(round(most * share)))
            for (name, part), share in zip(self.parts.items(), self.shares, strict=True)
        }
        mixed: list[Any] = [
            MixedTexts({name: parts[place] for name, parts in divided.items()}, self.shares) for place in range(2)
        ]
        return Splits(*mixed)

    def blocks(self, encode: Callable[[Any], Any]) -> MixedBlocks:
        return MixedBlocks(list(self.parts), [encode(part) for part in self.parts.values()], self.shares)


def mixed_splits(shares: Mapping[str, float], heldout: str | Path | None, column: str | None) -> Splits:
    found = {}
    for name in shares:
        place = resolved(name)
        if is_prepared(place):
            raise DataError(f"{name} is prepared already; a mixture takes sources, which are prepared together")
        found[name] = find_source(place, heldout=heldout, column=column)
    parts = {
        name: SourceTexts(replace(one, against=tuple(other for other in found.values() if other is not one)))
        for name, one in found.items()
    }
    evaluated = list(found.values())[: 1 if heldout is not None else None]
    held = documents(text for one in evaluated for text in one.heldout_texts(stop))
    train: Any = MixedTexts(parts, list(shares.values()))
    return Splits(train, held, is_divided=any(one.is_divided for one in evaluated))


class MixedBlocks(torch.utils.data.Dataset[Any]):
    """Blocks of several sources, one source after the other, to be drawn in `shares`.

    A number beyond the last block is a block of a later epoch of its source: number = epoch * len + place.
    """

    def __init__(self, names: Sequence[str], parts: Sequence[Any], shares: Sequence[float]) -> None:
        self.names, self.parts, self.shares = list(names), list(parts), list(shares)
        self.sizes = [len(part) for part in self.parts]
        if empty := [name for name, size in zip(self.names, self.sizes, strict=True) if not size]:
            raise DataError(f"{empty[0]} has fewer tokens than a block of the mixture; leave it out")
        self.ends = np.cumsum(self.sizes).tolist()

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, number: int) -> dict[str, Any]:
        epoch, place = divmod(number, len(self))
        source = bisect_right(self.ends, place)
        part = self.parts[source]
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
        block: dict[str, Any] = part[place - (self.ends[source] - self.sizes[source])]
        return block

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        return np.concatenate([part.lengths for part in self.parts])

    @property
    def num_tokens(self) -> int:
        """Number of ids that are read, without padding."""
        return sum(getattr(part, "num_tokens", int(part.lengths.sum())) for part in self.parts)

    @cached_property
    def pattern(self) -> Numbers:
        """The source of each block of a period: the one that is furthest below its share. *Shape:* (period,)."""
        shares, drawn = np.array(self.shares), np.zeros(len(self.shares))
        chosen = np.empty(PERIOD, np.int64)
        for place in range(PERIOD):
            chosen[place] = np.argmax(shares * (place + 1) - drawn)
            drawn[chosen[place]] += 1
        return chosen

    @cached_property
    def before(self) -> Numbers:
        """How many blocks of each source come before each place of a period. *Shape:* (num_sources, period + 1)."""
        ones = self.pattern == np.arange(len(self.parts))[:, None]
        return np.concatenate([np.zeros((len(self.parts), 1), np.int64), np.cumsum(ones, 1)], 1)

    def drawn(self, number: int) -> list[int]:
        """How many blocks of each source are among the first ones of a run."""
        periods, rest = divmod(number, PERIOD)
        return (periods * self.before[:, -1] + self.before[:, rest]).tolist()

    def result(self, number: int) -> dict[str, dict[str, float]]:
        """Share of the blocks and epochs of each source, after a number of blocks."""
        drawn = self.drawn(number)
        return {
            name: {"share": count / max(number, 1), "epochs": count / size}
            for name, count, size in zip(self.names, drawn, self.sizes, strict=True)
        }
