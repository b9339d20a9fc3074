"""CTranslate2 speaks in tokens where models speak in ids."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.base.errors import CheckpointError
from zoo.models import ZooConfig

TARGET_FOLDER = "target"
"""Where a checkpoint holds the target's own tokenizer."""


@dataclass(frozen=True)
class Vocabularies:
    """A token for every id, no two alike."""

    source: tuple[str, ...]
    target: tuple[str, ...]


def read_vocabularies(config: ZooConfig, folder: Path | None) -> Vocabularies:
    """Name every id, by the tokenizers in a folder where there are some."""
    size = config.decoder_vocab_size if config.stack == "encoder-decoder" else config.vocab_size
    if config.stack == "encoder-decoder" and config.share_encoder_decoder_embeddings:
        size = config.vocab_size
    own = None if folder is None else folder / TARGET_FOLDER
    source = tokens_of(folder, config.vocab_size)
    return Vocabularies(source, tokens_of(own if own is not None and own.is_dir() else folder, size))


def tokens_of(folder: Path | None, size: int) -> tuple[str, ...]:
    """Name ids by a tokenizer, or by their numbers."""
    named: dict[int, str] = {}
    if folder is not None and (folder / "tokenizer.json").is_file():
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        named = {number: token for token, number in tokenizer.get_vocab().items()}
    found: dict[str, None] = {}
    for number in range(size):
        token = named.get(number, f"<{number}>")
        while token in found:
            token = f"<{number}>{token}"
        found[token] = None
    return tuple(found)


def saved_vocabularies(folder: Path) -> Vocabularies:
    """Read the vocabularies of an export."""

    def tokens(*names: str) -> tuple[str, ...]:
        for name in names:
            if (folder / name).is_file():
                return tuple(json.loads((folder / name).read_text(encoding="utf-8")))
        raise CheckpointError(f"{folder} has no {names[0]}")

    shared = ("shared_vocabulary.json", "vocabulary.json")
    return Vocabularies(tokens("source_vocabulary.json", *shared), tokens("target_vocabulary.json", *shared))
