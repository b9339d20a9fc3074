"""The manifest of a saved folder: which files the zoo wrote there, and what was in them.

It is what makes two things safe. `--force` replaces files of a manifest that are as they were written, and nothing
else. And weights that a disk or a copy has damaged are not loaded, although they may still look like weights.

A folder without a manifest loads unchecked. To change weights on purpose without saving them through the zoo,
remove the manifest; a configuration or a tokenizer may be edited freely.
"""

from __future__ import annotations

import json
import mmap
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from zoo.base.errors import CheckpointError, FormatVersionError, ZooWarning, enumerate_names
from zoo.base.files import leaves_its_folder, read_json, write_file
from zoo.base.formats import BUNDLE, MANIFEST

try:
    import xxhash
except ModuleNotFoundError:  # as where a model's code is loaded without the zoo
    xxhash = None  # type: ignore[assignment]

MANIFEST_FILE = MANIFEST.place
WEIGHTS = ".safetensors"
CODE_FILE = BUNDLE.place  # The record of a bundle's code, with the SHA-256 of every file


@dataclass(frozen=True)
class Written:
    """Size and hashes of a written file."""

    size: int
    sha256: str
    # The same, None in older manifests. Where xxhash is installed files are compared by it, in an eighth of the time:
    # it finds damage, and forgery nothing here can find, since a manifest is as easily changed.
    xxh3_128: str | None = None

    def is_content_of(self, file: Path) -> bool:
        if file.stat().st_size != self.size:
            return False
        if xxhash is not None and self.xxh3_128 is not None:
            return quick_hash(file) == self.xxh3_128
        return sha256_of(file) == self.sha256


def read_manifest(folder: Path) -> dict[str, Written]:
    """Entries of a folder's manifest by path, empty without one; CheckpointError if it is damaged or too new."""
    file = folder / MANIFEST_FILE
    if not file.is_file():
        return {}
    try:
        content = read_json(file)
        MANIFEST.check(content, file)
        found = {name: Written(**entry) for name, entry in content["files"].items()}
    except FormatVersionError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CheckpointError(f"{file} is damaged; remove it, and the folder loads unchecked") from error
    for name in found:
        if leaves_its_folder(name) or not (folder / name).parent.resolve().is_relative_to(folder.resolve()):
            raise CheckpointError(f"{file} names {name!r}, which is not a file of its own folder; remove it")
    return found


def record(folder: Path, names: Iterable[str]) -> None:
    """Update the entries of files, and remove those of missing ones."""
    files = {name: entry for name, entry in read_manifest(folder).items() if (folder / name).is_file()}
    files |= {name: describe(folder / name) for name in names}
    content = {**MANIFEST.stamp, "files": {name: asdict(files[name]) for name in sorted(files)}}
    write_file(folder / MANIFEST_FILE, json.dumps(content, indent=2) + "\n")


def record_all(folder: Path) -> None:
    """Write the manifest of a folder in which every file is the zoo's own."""
    known = read_manifest(folder)
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()} - {MANIFEST_FILE}
    record(folder, (name for name in names if not (name in known and name.endswith(WEIGHTS))))


@contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Write into the manifest which files of a folder are written meanwhile."""
    before = stats(folder)
    yield
    record(folder, [name for name, stat in stats(folder).items() if before.get(name) != stat])


def stats(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Stamp that changes when a file is written again."""
    if not folder.is_dir():
        return {}
    files = [entry for entry in os.scandir(folder) if entry.is_file() and entry.name != MANIFEST_FILE]
    return {file.name: (file.inode(), file.stat().st_size, file.stat().st_mtime_ns) for file in files}


def describe(file: Path) -> Written:
    return Written(file.stat().st_size, sha256_of(file), None if xxhash is None else quick_hash(file))


def weights_of(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of weights in a folder: by its manifest, which is not verified here, if that has it."""
    known = read_manifest(folder)
    files = sorted(folder.glob(f"*{WEIGHTS}"))
    return {file.name: known[file.name].sha256 if file.name in known else sha256_of(file) for file in files}


MAPPED = 1 << 29
"""Bytes of a file that are mapped into memory at a time.

Between parts a hash waits for other threads of Python, some 5 ms where a model is loaded at the same time. Systems want
parts to begin at multiples of 2^16 at most."""


def sha256_of(file: Path) -> str:
    from huggingface_hub.utils.sha import sha_fileobj

    with file.open("rb") as stream:
        return sha_fileobj(stream).hex()


def quick_hash(file: Path) -> str:
    """Hash a file by XXH3, at about the speed at which memory is read."""
    digest, size = xxhash.xxh3_128(), file.stat().st_size
    with file.open("rb") as stream:
        # Part by part, or the whole file would count as memory of this process.
        for start in range(0, size, MAPPED):
            length = min(MAPPED, size - start)
            with mmap.mmap(stream.fileno(), length, offset=start, access=mmap.ACCESS_READ) as content:
                digest.update(content)
    return digest.hexdigest()


def changed_files(folder: Path, files: Mapping[str, Written]) -> list[str]:
    there = {name: entry for name, entry in files.items() if (folder / name).is_file()}
    return sorted(name for name, entry in there.items() if not entry.is_content_of(folder / name))


def check_code(folder: Path) -> None:
    """Require the code in the folder of a bundle to be what was exported; `zoo.hub.pull` brings none."""
    try:
        listed = dict(read_json(folder / CODE_FILE)["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / CODE_FILE} is not a valid record of code: {error}") from error
    found = {file.name: sha256_of(file) for file in folder.glob("*.py")}
    changed = sorted(name for name in {**listed, **found} if listed.get(name) != found.get(name))
    if found and changed:
        raise CheckpointError(
            f"{folder} holds code that is not what was exported, by its {CODE_FILE}: {enumerate_names(changed)}. The "
            "zoo runs its own code instead; to load the weights all the same, give verify=False"
        )


@contextmanager
def verified(folder: Path, *, strict: bool = True) -> Iterator[None]:
    """Compare a folder's weights with its manifest while they are loaded."""
    # In the Hub's cache files are links to what their hash is the name of.
    files = read_manifest(folder)
    weights = {name: files[name] for name in files if name.endswith(WEIGHTS) and not (folder / name).is_symlink()}
    with ThreadPoolExecutor(1) as pool:
        comparison = pool.submit(changed_files, folder, weights)
        yield
        changed = comparison.result()
    if changed:
        problem = (
            f"{folder} holds weights that are not those that were saved, by its {MANIFEST_FILE}: "
            f"{enumerate_names(changed)}; a disk or a copy has damaged them. If they were changed on purpose, remove "
            f"{MANIFEST_FILE}, or load with verify=False"
        )
        if strict:
            raise CheckpointError(problem)
        warnings.warn(problem, ZooWarning, stacklevel=2)
