"""Tokenizers that transformers.js has code for: it reads `tokenizer.json`, and supports most of its contents.

Parts that it computes otherwise are written as others that compute the same here and there, or refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zoo.base.errors import CheckpointError
from zoo.base.files import read_json
from zoo.base.folders import TARGET_FOLDER, TOKENIZER_FILE

from ..errors import ExportError
from ..native.files import TOKENIZER_CONFIG, TOKENIZER_FILES, carry_tokenizer

PARTS = {  # Types of the parts of `tokenizer.json` that transformers.js 4.3 knows
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


def carry(source: Path, folder: Path) -> None:
    carry_tokenizer(source, folder)
    for place in (folder, folder / TARGET_FOLDER):
        if any((place / name).is_file() for name in TOKENIZER_FILES):
            check(place / TOKENIZER_FILE)
            saved = read_json(place / TOKENIZER_FILE)
            write(place / TOKENIZER_FILE, {**saved, **{part: alike(saved[part]) for part in ALIKE}})
            config = read_json(place / TOKENIZER_CONFIG) if (place / TOKENIZER_CONFIG).is_file() else {}
            # Spaces before punctuation stay in texts unless that is asked for, as in transformers.
            write(place / TOKENIZER_CONFIG, {"clean_up_tokenization_spaces": False, **config})


def write(path: Path, saved: dict[str, Any]) -> None:
    path.write_text(json.dumps(saved, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


ALIKE = ("normalizer", "pre_tokenizer")  # What is written otherwise

WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}"  # Characters of words

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # Pieces of byte-level tokenizers


def split(pattern: str, behavior: str = "Isolated", *, invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def alike(one: Any) -> Any:
    """A part as another one, where transformers.js knows other classes of characters than its own library."""
    match one:
        case {"type": "Sequence"}:
            return {name: [*map(alike, value)] if isinstance(value, list) else value for name, value in one.items()}
        case {"type": "Whitespace"}:
            return split(rf"[{WORD}]+|[^\s{WORD}]+", "Removed", invert=True)
        case {"type": "WhitespaceSplit"}:
            return split(r"\s+", "Removed")
        case {"type": "Digits", "individual_digits": alone}:
            return split(r"\p{N}" if alone else r"\p{N}+")
        case {"type": "Punctuation", "behavior": behavior}:
            signs = r"[\p{P}!-/:-@\[-`{-~]"
            return split(f"{signs}+") if behavior == "Contiguous" else split(signs, behavior)
        case {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}:
            return {"type": "Sequence", "pretokenizers": [split(GPT2), {**one, "use_regex": False}]}
        case {"type": "Metaspace", "split": True, "replacement": sign}:
            cut = split(rf"\x{{{ord(sign):x}}}[^\x{{{ord(sign):x}}}]*")
            return {"type": "Sequence", "pretokenizers": [one, cut]}
        case {"type": "Lowercase"} | {"type": "BertNormalizer", "lowercase": True}:
            # It makes another letter of a capital sigma at the end of a word.
            sigma = {"type": "Replace", "pattern": {"String": "Σ"}, "content": "σ"}
            return {"type": "Sequence", "normalizers": [sigma, one]}
    return one


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
            (part, problem, f"valid: {', '.join(known)}")
            for part, known in PARTS.items()
            for one in inside(saved[part])
            if (problem := problem_of(one, known)) is not None
        ]
        alone = (repr(one["content"]) for one in saved["added_tokens"] if one.get("single_word"))
        unknown += [("added token", content, "it is added as a single word") for content in alone]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error!r}") from error
    if unknown:
        part, problem, reason = unknown[0]
        raise ExportError(f"transformers.js cannot hold this tokenizer: it has the {part} {problem}; {reason}")


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
    if kind == "Punctuation" and one["behavior"].startswith("Merged"):
        return f"Punctuation, {one['behavior'].lower()}"
    for option in ("byte_fallback",) if kind == "Unigram" else ("continuing_subword_prefix",) if kind == "BPE" else ():
        if one.get(option):
            return f"{kind} with {option}={one[option]!r}"
    return None if kind in known else kind
