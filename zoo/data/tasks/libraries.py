"""Datasets of the `datasets` library: saved in a folder, or on the Hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.base.errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset

SAVED_FILES = ("dataset_info.json", "dataset_dict.json")  # Files that `save_to_disk` writes

NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?::(?P<configuration>[\w.-]+))?")


def is_saved_dataset(folder: Path) -> bool:
    """Whether a folder is what `save_to_disk` has written."""
    return any((folder / file).is_file() for file in SAVED_FILES)


def is_dataset_name(text: str) -> bool:
    match = NAME.fullmatch(text)
    return match is not None and not text.startswith(".") and Path(text).suffix.lower() not in LOCAL_SUFFIXES


LOCAL_SUFFIXES = (".tsv", ".csv", ".json", ".jsonl", ".txt", ".parquet", ".conll", ".gz", ".zip")


@contextmanager
def loading_bars(*, shown: bool) -> Iterator[None]:
    """Show or hide progress bars of `datasets` and of the Hub's client in this context."""
    import datasets
    import huggingface_hub.utils

    libraries = [one for one in (datasets, huggingface_hub.utils) if not (shown or one.are_progress_bars_disabled())]
    for library in libraries:
        library.disable_progress_bars()
    try:
        yield
    finally:
        for library in libraries:
            library.enable_progress_bars()


def dataset_splits(data: str | Path) -> dict[str, Dataset]:
    from datasets import DatasetDict, load_dataset, load_from_disk

    try:
        if Path(data).is_dir():
            loaded = load_from_disk(str(data), keep_in_memory=True)
        else:
            match = NAME.fullmatch(str(data))
            repository, configuration = match.group("repository", "configuration") if match else (str(data), None)
            from zoo.hub.client import Hub

            with Hub().cached_if_unreachable():
                loaded = load_dataset(repository, configuration)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(f"dataset {data} cannot be loaded: {type(error).__name__}: {reason}") from error
    splits = dict(loaded) if isinstance(loaded, DatasetDict) else {"train": loaded}
    if not any(len(split) for split in splits.values()):
        raise DataError(f"dataset {data} is empty")
    return splits
