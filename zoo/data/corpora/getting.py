"""Corpora on this machine: downloaded, checked, built, and found again."""

import hashlib
import importlib
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from zoo.base.errors import DataError
from zoo.base.files import expanded, home_cache, read_json, stamp_of, write_json, written
from zoo.base.folders import locked
from zoo.base.formats import zoo_version
from zoo.base.manifest import sha256_of
from zoo.registry import CORPORA, Corpus, CorpusFile

DATA_VARIABLE = "ZOO_DATA"  # The environment variable that names the folder of all corpora

DOWNLOADS, RECORD = "files", ".zoo-corpus.json"
PREPARED, KEY_DIGITS = "prepared", 16
"""The folder of preparations in that of all corpora, and the digits of a hash that their names have."""
AT_ONCE = 8


class UnreachableDataError(DataError):
    """A file of a corpus that could not be downloaded."""

    exit_code = 1


def data_folder() -> Path:
    """Folder in which corpora are kept: `ZOO_DATA`, by default in the user's cache."""
    if given := os.environ.get(DATA_VARIABLE):
        return expanded(given).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or home_cache()
    if cache is None:
        raise DataError(f"this user has no home, where corpora are kept: name another folder in {DATA_VARIABLE}")
    return Path(cache, "transformer-zoo", "data")


def corpus_folder(corpus: Corpus) -> Path:
    return data_folder() / corpus.name


def is_here(corpus: Corpus) -> bool:
    """Whether a corpus is downloaded, checked and built, and unchanged since by size and time of its files."""
    folder = corpus_folder(corpus)
    try:
        record = read_json(folder / RECORD)
        return record["definition"] == definition(corpus) and record["files"] == stamps(folder, record["files"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def located(data: str | os.PathLike[str]) -> str:
    """Path of a corpus, downloaded if it is not here, or `data` as it is; files and folders of that name come first."""
    name = os.fspath(data)
    if os.path.exists(name) or os.sep in name or name not in CORPORA:
        return name
    corpus = CORPORA.get(name)
    return name if corpus.hub else str(get(corpus.name))


def get(name: str, *, force: bool = False, progress: bool = True) -> Path:
    """Download a corpus or what is missing, check every file, build the training data, and return where they are."""
    corpus = CORPORA.get(name)
    if corpus.hub:
        raise DataError(f"corpus {name!r} is streamed from {corpus.source} while it is prepared")
    folder = corpus_folder(corpus)
    with written(folder), locked(folder / ".lock"):
        if force or not is_here(corpus):
            (folder / RECORD).unlink(missing_ok=True)
            download_all(corpus, folder / DOWNLOADS, progress=progress)
            build(corpus, folder)
            built = folder / corpus.data
            files = [folder / DOWNLOADS / file.path for file in corpus.files]
            files += sorted(file for file in (built.rglob("*") if built.is_dir() else [built]) if file.is_file())
            kept = stamps(folder, (file.relative_to(folder).as_posix() for file in files))
            write_json(folder / RECORD, {"definition": definition(corpus), "files": kept}, indent=None)
    return folder / corpus.data


def definition(corpus: Corpus) -> str:
    """Hash of what decides the files of a corpus: the digests of its downloads, and the code that builds it."""
    digest = hashlib.sha256("\n".join(f"{file.path} {file.digest}" for file in corpus.files).encode())
    if corpus.build:
        source = importlib.import_module(corpus.build.partition(":")[0]).__file__
        digest.update(Path(source or "").read_bytes())
    return digest.hexdigest()


def made_once(place: Path, make: Callable[[Path], object]) -> Path:
    """Find a folder, or let a function write it first, whole or not at all; other processes wait."""
    with written(place), locked(Path(f"{place}.lock")):
        if not place.is_dir():
            partial_folder = place.with_suffix(".partial")
            shutil.rmtree(partial_folder, ignore_errors=True)
            make(partial_folder)
            os.replace(partial_folder, place)
    return place


def place_of(kind: str, decides: Any) -> Path:
    """Folder of something that a version of the zoo makes once, by a hash of the data that decide it."""
    written_out = json.dumps([zoo_version(), decides], sort_keys=True, default=str)
    return data_folder() / PREPARED / f"{kind}-{hashlib.sha256(written_out.encode()).hexdigest()[:KEY_DIGITS]}"


def stamps(folder: Path, files: Any) -> dict[str, list[int]]:
    return {name: stamp_of(folder / name) for name in files}


def build(corpus: Corpus, folder: Path) -> None:
    """Make of the downloads what is trained on, whole or not at all."""
    if not corpus.build:
        return
    module, _, function = corpus.build.partition(":")
    made = folder / f"{corpus.data}.partial"
    for place in (made, folder / corpus.data):
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    getattr(importlib.import_module(module), function)(folder / DOWNLOADS, made)
    os.replace(made, folder / corpus.data)


def download_all(corpus: Corpus, folder: Path, *, progress: bool) -> None:
    """Download the files of a corpus that are not in a folder yet, several at once, and check all of them."""
    from huggingface_hub.utils.tqdm import tqdm

    sizes = sum(file.size or 0 for file in corpus.files)
    with (
        tqdm(total=sizes, unit="B", unit_scale=True, desc=corpus.name, disable=not progress or None) as bar,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        try:
            for size in pool.map(partial(download, corpus, folder), corpus.files):
                bar.update(size)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def download(corpus: Corpus, folder: Path, file: CorpusFile) -> int:
    """Download one file unless it is there, and check it; returns its size in bytes."""
    place = folder / file.path
    if place.is_file():
        check(corpus, file, place, "it is not the recorded file; remove it, or put the right one there")
        return place.stat().st_size
    partial_file = place.with_name(f"{place.name}.partial")
    place.parent.mkdir(parents=True, exist_ok=True)
    fetch(corpus, file, partial_file, place)
    try:
        check(corpus, file, partial_file, f"{corpus.url}{quote(file.path)} has other content than recorded")
    except DataError:
        partial_file.unlink()
        raise
    os.replace(partial_file, place)
    return place.stat().st_size


def fetch(corpus: Corpus, file: CorpusFile, partial_file: Path, place: Path) -> None:
    """Append to a partial file what is missing of it."""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils.tqdm import tqdm

    copy = f"a copy may be put at {place}"
    if not corpus.url:
        where = f"{file.path} (from {corpus.source})"
        raise UnreachableDataError(f"corpus {corpus.name!r} has no address for {where}; {copy}")
    url = f"{corpus.url}{quote(file.path)}"
    if file.size is not None and partial_file.is_file() and partial_file.stat().st_size > file.size:
        partial_file.unlink()
    try:
        with partial_file.open("ab") as stream:
            quiet = cast(Any, partial(tqdm, disable=True))
            http_get(url, stream, resume_size=stream.tell(), expected_size=file.size, tqdm_class=quiet)
    except Exception as error:  # of several libraries
        if isinstance(error, OSError) and error.errno and error.strerror and not isinstance(error, ConnectionError):
            raise  # of the disk
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UnreachableDataError(f"corpus {corpus.name!r}: {url} cannot be downloaded ({reason}); {copy}") from error


def check(corpus: Corpus, file: CorpusFile, place: Path, problem: str) -> None:
    """Raise DataError if a file has not its recorded digest."""
    if (digest := sha256_of(place)) != file.digest:
        found = f"expected sha256 {file.digest}, found {digest}"
        raise DataError(f"corpus {corpus.name!r}: {place} is damaged ({found}): {problem}")
