"""From what names a model to the folder that holds it, whole and verified."""

import functools
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo.base.errors import CheckpointError, InputError, UnwritableError
from zoo.base.files import check_writable
from zoo.base.formats import DISTRIBUTION, zoo_version
from zoo.registry import VARIANTS, Weights, find_weights, is_weights_name, list_weights
from zoo.registry.weights import HUB

from .records import check_files, read_record, shared_files, versions, write_record

FILE_ENDINGS = (".pt", ".pth", ".bin", ".safetensors", ".onnx", ".json")
"""Endings that tell the name of a missing file from the name of weights."""


def is_saved(name: str) -> bool:
    """Whether a name is that of weights or a folder; the name of a variant is not, as ./vanilla names a folder."""
    return isinstance(name, str) and name not in VARIANTS and (is_weights_name(name) or os.path.isdir(name))


def locate(source: str | os.PathLike[str], **options: Any) -> Path:
    """Find the folder of a model.

    Args:
        source: A folder; where a string names none, the name of weights ("vanilla.en-pt"), or a repository on the Hub.
        options: Of [`zoo.pull`][], where something is on the Hub: `revision`, `cache_dir`, `token`, `offline`, ...

    Returns:
        The folder. Of weights by name, every file has been compared with its record.

    Raises:
        UnknownWeightsError: When the weights that the source names are unknown.
        CheckpointError: When a file of them is missing or damaged, or a variant is named, which has no weights itself.
        InputError: When the source is no path.
        HubError: When a repository cannot be had.
    """
    from zoo.hub.addresses import is_repository

    if isinstance(source, os.PathLike) or (isinstance(source, str) and Path(source).exists()):
        return Path(source)
    if not isinstance(source, str):
        raise InputError(f"a {type(source).__name__} was given; give a model's folder, name of weights, or repository")
    if is_repository(source):
        from zoo.hub import pull

        return pull(source, **options)
    if is_weights_name(source) and Path(source).suffix.lower() not in FILE_ENDINGS:
        return locate_weights(find_weights(source), **options)
    refuse_word(source)
    return Path(source)


def refuse_word(source: str) -> None:
    """Refuse a variant's name, which has no weights, and a word that may be a repository's name without its prefix."""
    from zoo.hub.addresses import parse_address
    from zoo.hub.errors import RepoIdError

    if source in VARIANTS:
        trained = list_weights(f"{VARIANTS.canonical(source)}.*")
        named = f"it has weights: {', '.join(trained)}" if trained else "zoo train makes some"
        raise CheckpointError(f"{source!r} is a variant, without weights, and no such folder is here; {named}")
    with suppress(RepoIdError):
        address = parse_address(re.sub("^hf:/{0,2}", "", source))
        if Path(source).suffix.lower() not in FILE_ENDINGS:
            problem = f"{source!r} is no folder, file or name of weights"
            raise CheckpointError(f"{problem}; a repository on the Hub would be '{HUB}{address}'")


def locate_weights(weights: Weights, **options: Any) -> Path:
    """Find the folder of weights, and compare every file in it with their record.

    Args:
        options: Of [`zoo.pull`][], where they are on the Hub.

    Raises:
        CheckpointError: When a file is missing or damaged.
        HubError: When they are on the Hub and cannot be had.
    """
    if weights.on_hub:
        return fetch_weights(weights, **options)
    folder = Path(weights.source)
    if shared := shared_files(folder, weights):
        folder = assemble(folder, shared, weights)
    check_files(folder, weights)
    return folder


def assemble(folder: Path, shared: Mapping[str, Path], weights: Weights) -> Path:
    """Copy weights and files that they share into one folder of the cache, or a temporary one if that is read-only."""
    from filelock import FileLock
    from huggingface_hub import cached_assets_path

    from zoo.base.folders import RECORD_FILE, written_whole
    from zoo.base.manifest import describe

    try:
        kept = cached_assets_path("transformer-zoo", "weights", weights.name)
        check_writable(kept)
    except (OSError, ValueError, UnwritableError):  # a cache that takes no writing, or has a file in this place
        kept = Path(_temporary().name, weights.name)
        kept.mkdir(exist_ok=True)
    whole = kept / f"shipped-{describe(folder / RECORD_FILE).sha256[:16]}"
    with FileLock(kept / f"{whole.name}.lock"):
        with suppress(CheckpointError):
            check_files(whole, weights)
            return whole
        shutil.rmtree(whole, ignore_errors=True)
        with written_whole(whole) as place:
            shutil.copytree(folder, place, dirs_exist_ok=True)
            for name, file in shared.items():
                shutil.copyfile(file, place / name)
    return whole


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="transformer-zoo-")


def fetch_weights(weights: Weights, **options: Any) -> Path:
    """Pull weights from the Hub, convert those of a class of transformers, and keep the result for this version."""
    from filelock import FileLock
    from huggingface_hub import cached_assets_path

    from zoo.hub.addresses import COMMIT, parse_address

    revision = parse_address(weights.source, options.get("revision")).revision
    again = options.get("force_download", False)
    source = pulled(weights, **options) if again or not COMMIT.fullmatch(revision) else None  # a branch may have moved
    kept = cached_assets_path("transformer-zoo", "weights", weights.name)
    folder = kept / (revision if source is None else source.name)
    with FileLock(kept / f"{folder.name}.lock"):
        if again or not folder.exists() or read_record(folder).versions[DISTRIBUTION] != zoo_version():
            source = source or pulled(weights, **options)
            shutil.rmtree(folder, ignore_errors=True)
            convert_into(folder, weights, source)
    check_files(folder, replace(weights, files=read_record(folder).files))
    return folder


def pulled(weights: Weights, **options: Any) -> Path:
    from huggingface_hub import constants

    from zoo.hub import HubAccessError, HubUnreachableError, parse_address, pull

    address = parse_address(weights.source)
    try:
        return pull(str(address), **{**options, "with_pickles": True})
    except (HubAccessError, HubUnreachableError) as error:
        place = f"{constants.ENDPOINT}/{address.repo_id}, revision {address.revision}"
        raise type(error)(
            f"weights {weights.name!r} are fetched from {place}, when there is a connection: {error}"
        ) from error


def convert_into(folder: Path, weights: Weights, source: Path) -> None:
    """Make a folder of the zoo from a checkpoint that was pulled, with a record."""
    from zoo.base.folders import written_whole
    from zoo.building.fingerprints import fingerprint
    from zoo.converters.native.files import carry_tokenizer
    from zoo.converters.opening import open_folder

    model = open_folder(source, weights.task)
    if model.config.variant != weights.variant:
        problem = f"{weights.source} holds a model of variant {model.config.variant!r}"
        raise CheckpointError(f"{problem}, and {weights.name!r} must be one of {weights.variant!r}")
    with written_whole(folder) as place:
        model.save_pretrained(place)
        carry_tokenizer(source, place)
        found = {"num_parameters": model.num_parameters(), "dtype": str(model.dtype).removeprefix("torch.")}
        write_record(place, replace(weights, **found, versions=versions(), fingerprint=fingerprint(model)))
