"""Preparation: sources of text to token shards, once, in parallel processes, and resumed where it was killed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ConfigError, DataError, OutputExistsError
from zoo.base.files import read_json, write_file, written
from zoo.registry import CORPORA

from .getting import located
from .shard_worker import FAILED, document_hash
from .shards import FORMAT, Manifest, ShardRecord, id_type, is_prepared, read_manifest
from .sources import HUB, Piece, files_of, parts_of, plan, streamed

if TYPE_CHECKING:
    from zoo.data.tokenizers import Tokenizers

SHARD_BYTES, MOST_SHARDS = 1 << 25, 1 << 10
"""Bytes of text of a shard; more where there would be more shards than this."""

ON_ERROR = ("stop", "skip")
HELDOUT_FILE, PLAN_FILE, TOKENIZER_FILE, SHARDS = "heldout.jsonl", "plan.json", "tokenizer.json", "shards"


def prepare(
    source: str | os.PathLike[str],
    tokenizers: Tokenizers,
    folder: str | os.PathLike[str],
    *,
    heldout: str | os.PathLike[str] | None = None,
    column: str | None = None,
    on_error: str = "stop",
    jobs: int | None = None,
    shard_bytes: int | None = None,
    progress: bool = True,
) -> Manifest:
    """Write token shards of a source, with the tokenizer, into a folder that `--data` takes."""
    if on_error not in ON_ERROR:
        raise ConfigError(f"on_error={on_error!r} is not valid; valid: {' or '.join(ON_ERROR)}")
    tokenizer, place = tokenizers.source, Path(folder).absolute()
    if tokenizer.eos_token_id is None:
        raise ConfigError("the tokenizer has no eos_token, which ends documents")
    files, units, found = units_of(source, shard_bytes)
    heldout_pieces = [Piece(str(file)) for file in files_of(Path(located(heldout)))] if heldout is not None else found
    stamps = {str(file): [(stat := file.stat()).st_size, stat.st_mtime_ns] for file in files}
    options = {"column": column, "on_error": on_error}
    backend = tokenizer.backend_tokenizer.to_str()
    tokenizer_hash = hashlib.sha256(backend.encode()).hexdigest()
    planned = {
        "format": FORMAT,
        "units": [[asdict(piece) for piece in unit] for unit in units],
        "stamps": stamps,
        "tokenizer": tokenizer_hash,
        "end": tokenizer.eos_token_id,
        "options": options,
        "heldout": [asdict(piece) for piece in heldout_pieces],
    }
    key = hashlib.sha256(json.dumps(planned, sort_keys=True).encode()).hexdigest()
    with written(place):
        place.mkdir(parents=True, exist_ok=True)
        if finished := begin(place, key):
            return finished
        tokenizers.save(place)
        write_file(place / SHARDS / TOKENIZER_FILE, backend)
        hashes = write_heldout(place, heldout_pieces, column)
        common = {
            "stamps": stamps,
            "tokenizer": str(place / SHARDS / TOKENIZER_FILE),
            "code": id_type(len(tokenizer)),
            "end": tokenizer.eos_token_id,
            "heldout": hashes,
            **options,
        }
        records = encode_all(place, units, common, jobs or os.cpu_count() or 1, progress=progress)
        manifest = Manifest(key, tokenizer_hash, os.fspath(source), options, records)
        if not manifest.tokens:
            raise DataError(f"{os.fspath(source)} holds no text")
        manifest.write(place)
    return manifest


def units_of(
    source: str | os.PathLike[str], shard_bytes: int | None
) -> tuple[list[Path], list[list[Piece]], list[Piece]]:
    """Find the files of a source, the pieces of each shard, and those that are held out.

    Raises:
        DataError: When there is no such source.
    """
    name = located(source)
    if name in CORPORA and not Path(name).exists():
        corpus = CORPORA.get(name)
        name = f"{HUB}{corpus.hub}" + (f"@{corpus.revision}" if corpus.revision else "")
    if name.startswith(HUB):
        number = streamed(name).num_shards
        return [], [[Piece(name, shard, number, shard + 1 == number)] for shard in range(number)], []
    if not Path(name).exists():
        raise DataError(f"{name} does not exist; give a file, a folder, the name of a corpus, or hf:ORG/NAME")
    files = files_of(Path(name))
    train = [file for file in files if split_of(file, Path(name)) in TRAIN]
    aside = next(
        (found for split in HELDOUT if (found := [file for file in files if split_of(file, Path(name)) == split])), []
    )
    files = [Path(file).absolute() for file in (train or files)]
    total = sum(file.stat().st_size for file in files)
    size = shard_bytes if shard_bytes is not None else max(SHARD_BYTES, total // MOST_SHARDS)
    return files, plan(files, size), [Piece(str(file.absolute())) for file in aside] if train else []


TRAIN = ("train",)
HELDOUT = ("heldout", "validation", "valid", "dev", "test")


def split_of(file: Path, source: Path) -> str:
    """Split that a file of a folder belongs to: its name without suffixes, or the first folder that it is in."""
    parts = file.relative_to(source).parts if source.is_dir() else (file.name,)
    return parts[0].partition(".")[0].lower()


def begin(place: Path, key: str) -> Manifest | None:
    """Begin a preparation, or go on with the one in a folder.

    Returns:
        The manifest of a preparation that is whole already.

    Raises:
        OutputExistsError: When the folder holds another one, or something else.
    """
    file = place / PLAN_FILE
    if file.is_file():
        try:
            same = read_json(file)["key"] == key
        except (ValueError, LookupError, TypeError):
            same = False
        if not same:
            raise OutputExistsError(
                f"{place} holds another preparation (other sources, tokenizer or options); remove it, or name another "
                "folder"
            )
        return read_manifest(place) if is_prepared(place) else None
    if any(place.iterdir()):
        raise OutputExistsError(f"{place} is not empty, and holds no preparation; name another folder")
    (place / SHARDS).mkdir()
    write_file(file, json.dumps({"key": key}) + "\n")
    return None


def write_heldout(place: Path, pieces: Iterable[Piece], column: str | None) -> str | None:
    """Copy the held-out documents, and write their hashes.

    Returns:
        The file of hashes, None if nothing is held out.
    """

    def refuse(error: DataError) -> None:
        raise error

    hashes, lines = [], []
    for piece in pieces:
        for part in parts_of(piece, column, refuse):
            hashes.append(document_hash(part.text))
            lines.append(json.dumps({"text": part.text}, ensure_ascii=False) + "\n")
    if not lines:
        return None
    write_file(place / HELDOUT_FILE, "".join(lines))
    file = place / SHARDS / "heldout.hashes"
    file.write_bytes(b"".join(hashes))
    return str(file)


def encode_all(
    place: Path, units: Sequence[Sequence[Piece]], common: Mapping[str, Any], jobs: int, *, progress: bool
) -> list[ShardRecord]:
    """Write all shards that are not there yet, each in a process of its own."""
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    def encode(number: int) -> ShardRecord:
        shard = place / SHARDS / f"shard-{number:05d}"
        done = shard.with_suffix(".json")
        if not done.is_file():
            job = {**common, "place": str(shard), "pieces": [asdict(piece) for piece in units[number]]}
            call(shard.with_suffix(".job"), job)
        return ShardRecord(**{**read_json(done), "name": f"{SHARDS}/{shard.name}"})

    with ThreadPoolExecutor(jobs) as pool:
        try:
            steps = pool.map(encode, range(len(units)))
            records = list(tqdm(steps, total=len(units), desc="shards", disable=not progress or None))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for left in (*(place / SHARDS).glob("*.job"), *(place / SHARDS).glob("*.partial")):
        left.unlink(missing_ok=True)  # of a preparation that was killed
    return records


def call(file: Path, job: Mapping[str, Any]) -> None:
    """Do a job in a process.

    Raises:
        DataError: When it fails, with its message.
    """
    write_file(file, json.dumps(job))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "zoo.data.corpora.shard_worker", str(file)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment, check=False)
    if done.returncode == FAILED:
        answer = json.loads(done.stdout)
        error = DataError(answer["error"])
        error.exit_code = answer["exit_code"]
        raise error
    if done.returncode:
        raise DataError(f"{file.stem} of {file.parents[1]} failed with exit code {done.returncode}; try again")
    file.unlink(missing_ok=True)
