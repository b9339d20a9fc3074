"""Corpora and engines by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.base.errors import InvalidChoiceError, RegistrationError, UnknownCorpusError

from .names import matching
from .table import Registry

if TYPE_CHECKING:
    from zoo.training.generation.engines import Engine


BUILT_IN = {
    "torch": "engines:IN_TORCH",
    "torch-int8": "engines:IN_TORCH_INT8",
    "onnx": "engines:IN_ONNX_RUNTIME",
    "ctranslate2": "engines:IN_CTRANSLATE2",
    "ctranslate2-int8": "engines:IN_CTRANSLATE2_INT8",
    "llama.cpp": "engines:IN_LLAMA_CPP",
    "llama.cpp-q8_0": "engines:IN_LLAMA_CPP_Q8_0",
    "openvino": "engines:IN_OPENVINO",
    "openvino-int8": "engines:IN_OPENVINO_INT8",
    "fastest": "fastest:IN_THE_FASTEST",
}
"""The library's engines, and where each is in `zoo.training.generation`."""

ENGINES: Registry[Engine] = Registry("engine", error=InvalidChoiceError, definition=type)
"""Engines that models run in, by name. Plugins may add some."""

for _name, _path in BUILT_IN.items():
    ENGINES.register_lazily(_name, f"zoo.training.generation.{_path}")


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus at its origin."""

    path: str  # Its path below `Corpus.url`, and below the folder that downloads go to
    digest: str  # SHA-256 in hexadecimal digits
    size: int | None = None  # In bytes, None if unknown


@dataclass(frozen=True)
class Corpus:
    """A corpus, and how it is obtained: by downloads, or by streaming from the Hugging Face Hub.

    Attributes:
        name: Its name, which works as `--data NAME`.
        summary: A line on what it is.
        language: ISO 639-1 codes, separated by hyphens for parallel texts.
        license: SPDX identifier of the licence, or a few words.
        source: Where it comes from, for readers.
        words: Number of words, None if unknown.
        bytes: Size of the text in bytes, None if unknown.
        url: The address that paths of `files` are appended to; "" if the files must be brought by the user.
        files: The files to download.
        build: "module:function" that makes the corpus of the downloaded files, called with the folder of the downloads
            and the folder to write; "" if they are used as they are.
        data: The file or folder of `--data NAME`, relative to the folder of the corpus.
        hub: "org/name" or "org/name:configuration" of a data set on the Hub, which is streamed; "" for downloads.
        revision: The commit of the data set on the Hub, None for the newest.
    """

    name: str
    summary: str
    language: str
    license: str
    source: str
    words: int | None = None
    bytes: int | None = None
    url: str = ""
    files: tuple[CorpusFile, ...] = ()
    build: str = ""
    data: str = "files"
    hub: str = ""
    revision: str | None = None

    def __post_init__(self) -> None:
        if bool(self.files) == bool(self.hub):
            raise RegistrationError(f"corpus {self.name!r} must have either files or a data set on the Hub (hub)")


CORPORA: Registry[Corpus] = Registry("corpus", built_in="zoo.data.corpora.built_in", error=UnknownCorpusError)
"""All corpora, by name."""


def register_corpus(corpus: Corpus, *, override: bool = False) -> None:
    """Register a corpus, so that its name works wherever `--data` does.

    Args:
        corpus: The corpus.
        override: Whether it may take the name of another.

    Raises:
        NameCollisionError: When the name is taken.
    """
    module = sys._getframe(1).f_globals.get("__name__", "__main__")
    CORPORA.register(corpus.name, corpus, override=override, module=module)


def list_corpora(pattern: str | Iterable[str] = "*") -> list[str]:
    """Sorted names of corpora that match a pattern with wildcards, or one of several; "!" in front excludes matches."""
    return matching(CORPORA.names(), pattern)
