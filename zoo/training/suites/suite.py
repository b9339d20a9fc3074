"""Suites by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.base.errors import DataError, UnknownNameError
from zoo.data.corpora import get
from zoo.registry import CORPORA, Registry


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences of which one is acceptable."""

    good: str  # The acceptable sentence
    bad: str  # The other one
    paradigm: str  # The set of pairs that it belongs to
    phenomenon: str = ""  # The phenomenon that the paradigm is about
    field: str = ""  # The field of linguistics


@dataclass(frozen=True)
class Suite:
    """A set of minimal pairs in files of JSON lines, as BLiMP has them."""

    summary: str  # What it tests
    citation: str  # Its source
    files: str  # Where its files can be had

    def pairs(self, folder: str | Path, limit: int | None = None) -> Iterator[MinimalPair]:
        """Read the pairs.

        Args:
            folder: The folder with the suite's files, or one above a folder `data` with them.
            limit: Number of pairs per file; None for all.
        """
        files = sorted(Path(folder).glob("*.jsonl")) or sorted(Path(folder, "data").glob("*.jsonl"))
        if not files:
            raise DataError(f"{folder} has no *.jsonl files of this suite; they are {self.files}")
        for file in files:
            with file.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, start=1):
                    if limit is not None and number > limit:
                        break
                    if line.strip():
                        yield read_pair(file, number, line)


def read_pair(file: Path, number: int, line: str) -> MinimalPair:
    """Read one line of a file. Seven pairs of BLiMP are the same sentence twice, and no model is right on them."""
    try:
        row = json.loads(line)
        good, bad = row["sentence_good"], row["sentence_bad"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}, line {number}: no JSON object with sentence_good and sentence_bad") from error
    if not (isinstance(good, str) and isinstance(bad, str) and good.strip() and bad.strip()):
        raise DataError(f"{file}, line {number}: sentence_good and sentence_bad are two texts")
    named = (str(row.get(key) or "") for key in ("UID", "linguistics_term", "field"))
    paradigm, phenomenon, field = named
    return MinimalPair(good, bad, paradigm or file.stem, phenomenon or "other", field or "other")


SUITES: Registry[Suite] = Registry("suite", built_in="zoo.training.suites.built_in", error=UnknownNameError)


def suite_folder(name: str, folder: str | Path | None) -> Path:
    """Find the folder of a suite: the given one, or the corpus of its name, which is downloaded if it is not here."""
    if folder is not None:
        return Path(folder)
    if name not in CORPORA:
        files = SUITES.get(name).files
        raise DataError(f"no corpus has the files of the suite {name!r}: give the folder (--data DIR) with {files}")
    return get(name, progress=False)
