"""Writes token shards: `python -m zoo.data.corpora.shard_worker` reads jobs, one a line, and answers each in a line."""

import hashlib
import json
import os
import struct
import sys
from collections.abc import Container, Iterable
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from zoo.base.errors import ConfigError, DataError, ZooError
from zoo.base.files import stamp_of, write_json, written

from .shards import TYPES, ShardRecord, write_index
from .sources import BadLineError, Part, Piece, cut, parts_of

AT_ONCE = 1 << 20  # Characters that are encoded together

HASH_BYTES = 16

SHINGLE_WORDS = 5
PERMUTATIONS = 128
LEAST, MOST = 0.1, 0.98  # Range of similarities that an index with `PERMUTATIONS` resolves

IS_SPACE = np.array([chr(code).isspace() for code in range(0x3002)])
"""Whether a character is white space, by its code; U+3000 is the last that is."""


def document_hash(text: str) -> bytes:
    """Hash of a document, by which held-out ones are found among those to train on."""
    return hashlib.blake2b(text.strip().encode(), digest_size=HASH_BYTES).digest()


def count_words(text: str) -> int:
    """Count what `text.split()` returns."""
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    is_space = np.concatenate([[True], IS_SPACE.take(codes, mode="clip")])
    return int(np.count_nonzero(is_space[:-1] > is_space[1:]))


class Writer:
    """Encodes documents and appends them to a .bin file, each with the id `end` after it."""

    def __init__(self, stream: Any, tokenizer: Any, code: int, end: int) -> None:
        self.stream, self.tokenizer, self.format, self.end = stream, tokenizer, np.dtype(TYPES[code]).char, end
        self.digest = hashlib.sha256()
        self.lengths: list[int] = []
        self.tokens = self.words = self.bytes = self.documents = self._characters = 0
        self._open = 0  # ids written of an unfinished document
        self._waiting: list[tuple[str, bool, bool]] = []

    def add(self, part: Part) -> None:
        self.documents += part.begins
        texts = list(cut(part.text)) or [""]
        for number, text in enumerate(texts):
            last = number + 1 == len(texts)
            self._waiting.append((text, last, last and part.ends))
            self._characters += len(text)
            if self._characters >= AT_ONCE:
                self.flush()
            self.words += count_words(text)
        self.bytes += len(part.text.encode())

    def flush(self) -> None:
        encoded = self.tokenizer.encode_batch_fast([text for text, *_ in self._waiting], add_special_tokens=False)
        length = self._open
        for encoding, (_, last, ends) in zip(encoded, self._waiting, strict=True):
            ids = encoding.ids
            if ends:
                ids.append(self.end)
            raw = struct.pack(f"<{len(ids)}{self.format}", *ids)
            self.stream.write(raw)
            self.digest.update(raw)
            length += len(ids)
            self.tokens += len(ids)
            if last:
                self.lengths.append(length)
                length = 0
        self._open = length
        self._waiting, self._characters = [], 0


class NearDuplicates:
    """Held-out documents by MinHash (Broder 1997); `similarity` is the estimated Jaccard index of five-word runs."""

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
    from zoo.converters.errors import require

    return require("duplicates", "datasketch")


@lru_cache(1)
def read_tokenizer(file: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(file)


def run(job: dict[str, Any]) -> ShardRecord:
    """Write a shard of the job's pieces; DataError for bad lines unless they are skipped, and for changed files."""
    place, pieces = Path(job["place"]), [Piece(**piece) for piece in job["pieces"]]
    raw = Path(job["heldout"]).read_bytes()
    heldout = {raw[start : start + HASH_BYTES] for start in range(0, len(raw), HASH_BYTES)}
    near: Container[str] = ()
    if (similarity := job.get("near_duplicates")) is not None and job["heldout_texts"] is not None:
        with Path(job["heldout_texts"]).open(encoding="utf-8") as lines:
            near = NearDuplicates((json.loads(line)["text"] for line in lines), similarity)
    skipped = left_out = nearly = 0

    def skip(error: BadLineError) -> None:
        nonlocal skipped
        if job["on_error"] == "stop":
            raise error
        skipped += 1
        print(error, file=sys.stderr)

    # Separate names, as the process of a killed preparation may still write the same shard.
    partial, partial_index = (place.with_suffix(f".{kind}.{os.getpid()}.partial") for kind in ("bin", "idx"))
    check_unchanged(job["stamps"])
    with partial.open("wb") as stream:
        writer = Writer(stream, read_tokenizer(job["tokenizer"]), job["code"], job["end"])
        begun = True  # whether a part of the document is kept, as it may be in the shard before
        for part in (part for piece in pieces for part in parts_of(piece, job["column"], skip)):
            begun = begun and not part.begins
            if heldout and document_hash(part.text) in heldout:
                left_out += 1
                if begun and part.ends:
                    writer.add(Part("", begins=False))
            elif part.begins and part.ends and part.text in near:
                nearly += 1
            else:
                writer.add(replace(part, begins=not begun))
                begun = True
        writer.flush()
    check_unchanged(job["stamps"])
    write_index(partial_index, job["code"], writer.lengths)
    hashes = (writer.digest.hexdigest(), hashlib.sha256(partial_index.read_bytes()).hexdigest())
    os.replace(partial_index, place.with_suffix(".idx"))
    os.replace(partial, place.with_suffix(".bin"))
    counts = (writer.tokens, writer.documents, writer.bytes)
    return ShardRecord(place.name, *counts, hashes, skipped, left_out, writer.words, nearly)


def check_unchanged(stamps: dict[str, list[int]]) -> None:
    for file, stamp in stamps.items():
        if stamp_of(file) != stamp:
            raise DataError(f"{file} changed while it was prepared; prepare again when it no longer changes")


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do a job; returns nothing, or what the error is."""
    place = Path(job["place"])
    try:
        with written(place.parent):
            write_json(place.with_suffix(".json"), asdict(run(job)), indent=None)
    except ZooError as error:
        return {"error": str(error), "exit_code": error.exit_code}
    return {}


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
