"""Documents that nearly equal held-out ones, by MinHash (Broder 1997) of their words, with datasketch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zoo.base.errors import ConfigError
from zoo.converters.errors import require

SHINGLE_WORDS = 5
PERMUTATIONS = 128
LEAST, MOST = 0.1, 0.98  # Range of similarities that an index with `PERMUTATIONS` resolves


class NearDuplicates:
    """Index of held-out documents; `similarity` is the estimated Jaccard index of runs of five words."""

    def __init__(self, texts: Iterable[str], similarity: float) -> None:
        self.similarity, self.library = similarity, datasketch(similarity)
        self.hashes = [self.hashed(text) for text in texts]
        self.index = self.library.MinHashLSH(similarity, PERMUTATIONS)
        for number, one in enumerate(self.hashes):
            self.index.insert(number, one)

    def hashed(self, text: str) -> Any:
        words = text.split()
        runs = range(max(len(words) - SHINGLE_WORDS + 1, 1))
        made = self.library.MinHash(PERMUTATIONS)
        made.update_batch([" ".join(words[place : place + SHINGLE_WORDS]).encode() for place in runs])
        return made

    def __contains__(self, text: object) -> bool:
        found = self.hashed(str(text))
        return any(found.jaccard(self.hashes[number]) >= self.similarity for number in self.index.query(found))


def datasketch(similarity: float) -> Any:
    """Check the similarity, and import the library."""
    if not LEAST <= similarity <= MOST:
        raise ConfigError(f"near_duplicates={similarity!r} is not valid; it is between {LEAST} and {MOST}")
    return require("duplicates", "datasketch")
