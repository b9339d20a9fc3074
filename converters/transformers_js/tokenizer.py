"""Tokenizers that transformers.js has code for: it reads `tokenizer.json`, and supports most of its contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zoo.base.errors import CheckpointError
from zoo.base.files import read_json

from ..errors import ExportError
from ..native.files import TARGET_FOLDER, TOKENIZER_FILE, TOKENIZER_FILES, carry_tokenizer

PARTS = {
    "model": ("BPE", "Unigram", "WordLevel", "WordPiece"),
    "normalizer": (
        *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Precompiled", "Prepend", "Replace", "Sequence"),
        *("Strip", "StripAccents"),
    ),
    "pre_tokenizer": (
        *("BertPreTokenizer", "ByteLevel", "Digits", "FixedLength", "Metaspace", "Punctuation", "Replace", "Sequence"),
        *("Split", "Whitespace", "WhitespaceSplit"),
    ),
    "post_processor": ("BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"),
    "decoder": (
        *("BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Sequence", "Strip"),
        "WordPiece",
    ),
}
"""Types of the parts of `tokenizer.json` that transformers.js 4.3 knows."""


def carry(source: Path, folder: Path) -> None:
    carry_tokenizer(source, folder)
    for place in (folder, folder / TARGET_FOLDER):
        if any((place / name).is_file() for name in TOKENIZER_FILES):
            check(place / TOKENIZER_FILE)


def check(path: Path) -> None:
    """Refuse a tokenizer that transformers.js has no code for."""
    if not path.is_file():
        raise ExportError(
            f"transformers.js reads tokenizers from {TOKENIZER_FILE}, and this one has none; "
            f"`AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)` may write it"
        )
    try:
        saved = read_json(path)
        unknown = [
            (part, problem, known)
            for part, known in PARTS.items()
            for one in inside(saved[part])
            if (problem := problem_of(one, known)) is not None
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error!r}") from error
    if unknown:
        part, problem, known = unknown[0]
        raise ExportError(
            f"transformers.js cannot hold this tokenizer: it has the {part} {problem}; valid: {', '.join(known)}"
        )


def inside(saved: Any) -> Iterator[dict[str, Any]]:
    if saved is None:
        return
    yield saved
    for name in ("normalizers", "pretokenizers", "processors", "decoders"):
        for one in saved.get(name, ()):
            yield from inside(one)


def problem_of(one: dict[str, Any], known: Iterable[str]) -> str | None:
    """Name what transformers.js has no code for, None where it has."""
    kind = str(one["type"])
    if kind == "Split":
        behavior, inverted = one["behavior"].lower(), bool(one["invert"])
        # It keeps a string that is to be removed, and cuts at everything that is not to be.
        cuts = {("isolated", False), ("removed", True)} | ({("removed", False)} if "Regex" in one["pattern"] else set())
        if (behavior, inverted) not in cuts:
            return f"Split by {one['pattern']}, {behavior}{' and inverted' * inverted}"
    return None if kind in known else kind
