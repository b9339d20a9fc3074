"""Preparation: sources of text to token shards, once, in parallel processes, and resumed where it was killed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from zoo.base import formats
from zoo.base.errors import ConfigError, DataError, OutputExistsError
from zoo.base.files import read_json, read_mapping, write_file, write_json, written
from zoo.base.folders import TOKENIZER_FILE, locked

from .getting import KEY_DIGITS, PREPARED, data_folder
from .planning import TextSource, find_source
from .shard_worker import datasketch, document_hash
from .shards import MANIFEST, Manifest, ShardRecord, id_type, is_prepared, read_manifest
from .sources import BadLineError, Piece

if TYPE_CHECKING:
    from zoo.data.tokenizers import Tokenizers

ON_ERROR = ("stop", "skip")
HELDOUT_FILE, PLAN_FILE, SHARDS = "heldout.jsonl", "plan.json", "shards"


def prepare(
    source: str | os.PathLike[str],
    tokenizers: Tokenizers,
    folder: str | os.PathLike[str],
    *,
    on_error: str = "stop",
    near_duplicates: float | None = None,
    jobs: int | None = None,
    progress: bool = True,
    **found: Any,
) -> Manifest:
    """Write token shards of a source into a folder that `--data` takes; `found` are options of `find_source`."""
    if on_error not in ON_ERROR:
        raise ConfigError(f"on_error={on_error!r} is not valid; valid: {' or '.join(ON_ERROR)}")
    if near_duplicates is not None:
        datasketch(near_duplicates)
    preparation = Preparation(find_source(source, **found), tokenizers, on_error, near_duplicates)
    return preparation.write(Path(folder), jobs, progress=progress)


@dataclass(frozen=True)
class Preparation:
    """A source that is prepared with a tokenizer."""

    source: TextSource
    tokenizers: Tokenizers
    on_error: str = "stop"
    near_duplicates: float | None = None

    def __post_init__(self) -> None:
        if self.tokenizers.source.eos_token_id is None:
            raise ConfigError("the tokenizer has no eos_token, which ends documents")

    @cached_property
    def backend(self) -> str:
        from zoo.data.tokenizers.encoding import backend_json

        return backend_json(self.tokenizers.source)

    @property
    def tokenizer_hash(self) -> str:
        return hashlib.sha256(self.backend.encode()).hexdigest()

    @property
    def options(self) -> dict[str, Any]:
        """Options that decide what is written."""
        near = {} if self.near_duplicates is None else {"near_duplicates": self.near_duplicates}
        return {"column": self.source.column, "on_error": self.on_error, **near}

    @cached_property
    def key(self) -> str:
        """Hash of source, tokenizer and options."""
        planned = {
            **formats.SHARDS.stamp,
            **self.source.planned,
            "tokenizer": self.tokenizer_hash,
            "end": self.tokenizers.source.eos_token_id,
            "options": self.options,
        }
        return hashlib.sha256(json.dumps(planned, sort_keys=True).encode()).hexdigest()

    def kept(self, *, progress: bool = False) -> Path:
        """Write it into the folder of all corpora, or find it there, and return the folder; other processes wait."""
        place = data_folder() / PREPARED / self.key[:KEY_DIGITS]
        with written(place), locked(Path(f"{place}.lock")):
            self.write(place, progress=progress)
        return place

    def write(self, folder: Path, jobs: int | None = None, *, progress: bool = True) -> Manifest:
        place, tokenizer = folder.absolute(), self.tokenizers.source
        with written(place):
            place.mkdir(parents=True, exist_ok=True)
            if finished := begin(place, self.key):
                return finished
            others = (text for other in self.source.against for text in other.heldout_texts(self.skip))
            hashes, number = write_heldout(place, self.source.heldout_texts(self.skip), others)
            self.tokenizers.save(place)
            write_file(place / SHARDS / TOKENIZER_FILE, self.backend)
            common = {
                "stamps": self.source.stamps,
                "tokenizer": str(place / SHARDS / TOKENIZER_FILE),
                "code": id_type(len(tokenizer)),
                "end": tokenizer.eos_token_id,
                "heldout": hashes,
                "heldout_texts": str(place / HELDOUT_FILE) if number else None,
                **self.options,
            }
            records = encode_all(place, self.source.units, common, jobs or os.cpu_count() or 1, progress=progress)
            name, aside = self.source.name, number if self.source.aside else 0
            manifest = Manifest(self.key, self.tokenizer_hash, name, self.options, records, aside)
            if not manifest.tokens:
                held = any(record.heldout for record in records)
                why = "; all of it is held out: name texts to evaluate on (--heldout)" if held else ""
                raise DataError(f"{name} holds no text to train on{why}")
            write_json(place / MANIFEST, asdict(manifest), indent=1)
        return manifest

    def skip(self, error: BadLineError) -> None:
        """Do what was asked for at a line of held-out texts that is not valid."""
        if self.on_error == "stop":
            raise error


def begin(place: Path, key: str) -> Manifest | None:
    """Begin a preparation, or go on with that in the folder; returns the manifest of one that is whole already."""
    file = place / PLAN_FILE
    if file.is_file():
        if read_mapping(file).get("key") != key:
            problem = f"{place} holds another preparation (other sources, tokenizer or options)"
            raise OutputExistsError(f"{problem}; remove it, or name another folder")
        return read_manifest(place) if is_prepared(place) else None
    if any(place.iterdir()):
        raise OutputExistsError(f"{place} is not empty, and holds no preparation; name another folder")
    (place / SHARDS).mkdir()
    write_json(file, {"key": key}, indent=None)
    return None


def write_heldout(place: Path, texts: Iterable[str], others: Iterable[str]) -> tuple[str, int]:
    """Copy the held-out documents, and write hashes of all; returns the file of hashes and the number of copies."""
    hashes, lines = [], []
    for text in texts:
        hashes.append(document_hash(text))
        lines.append(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    if lines:
        write_file(place / HELDOUT_FILE, "".join(lines))
    file = place / SHARDS / "heldout.hashes"
    file.write_bytes(b"".join([*hashes, *map(document_hash, others)]))
    return str(file), len(hashes)


def encode_all(
    place: Path, units: Sequence[Sequence[Piece]], common: Mapping[str, Any], jobs: int, *, progress: bool
) -> list[ShardRecord]:
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    shards = [place / SHARDS / f"shard-{number:05d}" for number in range(len(units))]
    missing = sum(not shard.with_suffix(".json").is_file() for shard in shards)
    idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()

    def encode(shard: Path, pieces: Sequence[Piece]) -> ShardRecord:
        done = shard.with_suffix(".json")
        if not done.is_file():
            worker = idle.get()
            try:
                call(worker, {**common, "place": str(shard), "pieces": [asdict(piece) for piece in pieces]})
            finally:
                idle.put(worker)
        return ShardRecord(**{**read_json(done), "name": f"{SHARDS}/{shard.name}"})

    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        for _ in range(min(jobs, missing)):
            idle.put(stack.enter_context(start_worker()))
        try:
            steps = pool.map(encode, shards, units)
            records = list(tqdm(steps, total=len(units), desc="shards", disable=not progress or None))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for left in (place / SHARDS).glob("*.partial"):
        left.unlink(missing_ok=True)  # of a preparation that was killed
    return records


def start_worker() -> subprocess.Popen[str]:
    """Start a process that writes shards, one after the other, until its input ends."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "zoo.data.corpora.shard_worker"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, encoding="utf-8")


def call(worker: subprocess.Popen[str], job: Mapping[str, Any]) -> None:
    assert worker.stdin is not None and worker.stdout is not None
    with suppress(BrokenPipeError, ValueError):  # of a process that has ended, or whose input is closed for that
        print(json.dumps(job), file=worker.stdin, flush=True)
    if not (answer := worker.stdout.readline()):
        shard = Path(job["place"])
        with suppress(BrokenPipeError):
            worker.stdin.close()
        raise DataError(f"{shard.name} of {shard.parents[1]} failed with exit code {worker.wait()}; try again")
    if failed := json.loads(answer):
        error = DataError(failed["error"])
        error.exit_code = failed["exit_code"]
        raise error
