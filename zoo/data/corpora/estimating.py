"""Estimates of the number of training tokens, and of the time to read or prepare them."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoo.base.errors import DataError, suggest
from zoo.registry import CORPORA

from .shards import Manifest, is_prepared, read_manifest

TOKENS_PER_WORD = 1.33
"""Of English and a vocabulary of some 30,000 ids: three words for four tokens. `books` with 4,096 ids has 1.59."""

BYTES_PER_WORD = 5.7  # Of English text: 5.67 in `books`

PREPARED_PER_SECOND = 3.0e6
"""Bytes of text that a core prepares in a second: of `python scripts/bench/corpora.py books`, in one process."""

PROBED_SECONDS, BLOCK = 0.2, 1024


@dataclass(frozen=True)
class DataEstimate:
    """Data of a plan."""

    tokens: int  # Number of tokens of an epoch
    estimated: bool  # Whether it is an estimate by the number of words
    # Processor time of reading an epoch, measured on this machine; None before it is prepared
    read_seconds: float | None
    prepare_seconds: float | None  # Processor time of preparing it; None if that is done


def estimate(data: str | os.PathLike[str]) -> DataEstimate:
    """Find the tokens of a prepared folder, or estimate those of a corpus by its recorded number of words."""
    name = os.fspath(data)
    if is_prepared(name):
        manifest = read_manifest(name)
        return DataEstimate(manifest.tokens, False, read_seconds(manifest, Path(name)), None)
    if name not in CORPORA:
        raise DataError(
            f"{name} is neither a prepared folder (zoo data prepare) nor the name of a corpus (zoo data)"
            f"{suggest(name, CORPORA.names())}"
        )
    corpus = CORPORA.get(name)
    if corpus.words is None:
        raise DataError(f"the words of corpus {name!r} are not recorded; prepare it, and name the folder")
    size = corpus.bytes if corpus.bytes is not None else corpus.words * BYTES_PER_WORD
    return DataEstimate(round(corpus.words * TOKENS_PER_WORD), True, None, size / PREPARED_PER_SECOND)


def read_seconds(manifest: Manifest, folder: Path) -> float:
    """Measure how long an epoch of blocks in random order takes to read, on one process."""
    row = manifest.row(folder)
    starts = np.random.default_rng(0).integers(0, max(len(row) - BLOCK, 1), 1 << 16)
    began, read = time.process_time(), 0
    for start in starts.tolist():
        read += len(row[start : start + BLOCK].astype(np.int64))
        if (spent := time.process_time() - began) > PROBED_SECONDS:
            break
    return spent * len(row) / read
