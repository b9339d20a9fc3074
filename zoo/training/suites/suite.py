"""Suites by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from zoo.base.errors import DataError, UnknownNameError, raised_as
from zoo.data.corpora import data_folder, get
from zoo.registry import CORPORA, Registry


@dataclass(frozen=True)
class Option:
    """A text that a model may prefer to others."""

    completion: str  # The part that is scored
    prefix: str = ""  # The part before it, which is read
    separator: str = ""  # Between the two

    @property
    def text(self) -> str:
        return f"{self.prefix}{self.separator}{self.completion}"

    @property
    def start(self) -> int:
        return len(self.prefix) + len(self.separator)


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences, one acceptable and one not."""

    good: str  # The acceptable sentence
    bad: str  # The other one
    paradigm: str  # The set of pairs that it belongs to
    phenomenon: str = ""  # The phenomenon that the paradigm is about
    field: str = ""  # The field of linguistics

    @property
    def options(self) -> tuple[Option, ...]:
        """Both sentences."""
        return Option(self.good), Option(self.bad)

    @property
    def preference(self) -> None:
        """Not asked."""


@dataclass(frozen=True)
class Choice:
    """Any number of texts that are compared, or parts of texts; the first one is right."""

    options: tuple[Option, ...]
    paradigm: str
    phenomenon: str = "other"
    field: str = "other"
    preference: float | None = None


Item = MinimalPair | Choice
"""A question to a model: options, the right one first."""

Reader = Callable[[Path, Mapping[str, Any]], Item]
"""Makes an item from a file's name and an object in it; raises KeyError, TypeError, ValueError for other objects."""


@dataclass(frozen=True)
class Suite:
    """A set of items in files of JSON lines."""

    summary: str  # Description of its questions
    citation: str  # Its source
    files: str  # Where its files can be had
    read: Reader  # Makes an item of a line
    keys: str  # Keys of a line, for messages
    # Names that the folder with its files has in a larger one, such as BabyLM's evaluation_data
    folders: tuple[str, ...] = ()
    measure: str = "accuracy"  # "accuracy", or "correlation" of a model's preference with people's
    # The accuracy is the mean over these groups ("phenomenon"), of each the mean over its paradigms, or the mean over
    # all paradigms
    average: str = "paradigm"

    def items(self, folder: str | Path, limit: int | None = None) -> Iterator[Item]:
        for file in self.find(Path(folder)):
            with file.open(encoding="utf-8") as lines:
                written = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
                for number, line in islice(written, limit):
                    yield self.item(file, number, line)

    def find(self, folder: Path) -> list[Path]:
        inside = (*self.folders, "data")
        for place in (folder, *(folder / name for name in inside), *(folder / "full_eval" / name for name in inside)):
            if found := sorted(place.glob("*.jsonl")):
                return found
        raise DataError(f"{folder} has no *.jsonl files of this suite; they are {self.files}")

    def item(self, file: Path, number: int, line: str) -> Item:
        message = f"{file}, line {number}: no JSON object with {self.keys}"
        with raised_as(DataError, lambda _: message, ValueError, KeyError, TypeError, AttributeError):
            item = self.read(file, json.loads(line))
            texts = [text for option in item.options for text in (option.completion, option.text)]
        if len(item.options) < 2 or not all(isinstance(text, str) and text.strip() for text in texts):
            raise DataError(f"{file}, line {number}: {self.keys} are no texts to choose from")
        return item


SUITES: Registry[Suite] = Registry("suite", built_in="zoo.training.suites.built_in", error=UnknownNameError)

BABYLM = "evaluation_data"  # Folder of BabyLM's evaluation in that of all corpora


def suite_folder(name: str, folder: str | Path | None) -> Path:
    """Find a suite's folder, by default the corpus of its name, or in BabyLM's evaluation_data in `ZOO_DATA`."""
    if folder is not None:
        return Path(folder)
    if name in CORPORA:
        return get(name, progress=False)
    if (place := data_folder() / BABYLM).is_dir():
        return place
    files = SUITES.get(name).files
    raise DataError(
        f"no corpus has the files of the suite {name!r}: give the folder (--data DIR), or put it at {place}: {files}"
    )
