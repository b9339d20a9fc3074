"""From the Hub to a folder: complete, verified, safetensors only, and no code that was not allowed."""

import os
import re
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

from zoo.base.errors import ConfigError, ZooWarning, enumerate_names
from zoo.base.files import expanded, leaves_its_folder, read_object, write_file
from zoo.base.folders import relative_files
from zoo.base.formats import installed_version

from .addresses import COMMIT, Address, parse_address
from .checksums import checksum_of, is_intact, is_intact_blob
from .client import LIBRARY, Hub
from .delivery import deliver
from .errors import HubAccessError, HubError, IntegrityError, RemoteCodeError, UnsafeWeightsError
from .folders import CONFIG, PICKLES, WEIGHTS, check_shards
from .retries import RetryPolicy
from .session import LONGEST_ANSWER, expecting

CODE = "*.py"

DISTRIBUTION = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?")  # The name of a distribution on PyPI

NOT_PULLED = (
    *PICKLES,
    *("*.bin", "*.onnx*", "*.gguf", "*.ot", "*.npz", "*.tflite", "*.mlmodel", "*.mlpackage/**", ".git*"),
)
"""Formats that the zoo does not read; a repository may hold one copy of the weights in each."""


class MissingPluginWarning(ZooWarning):
    """A model was pulled that a plugin is needed for."""


PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin")
"""Weights as transformers wrote them before there were safetensors."""


def files_to_pull(listed: dict[str, Any], *, with_code: bool, with_pickles: bool = False) -> list[str]:
    for path in listed:
        if leaves_its_folder(path) or "\\" in path:
            raise HubError(f"the Hub lists a file that would leave its folder: {path!r}")
    ignored = NOT_PULLED if with_code else (*NOT_PULLED, CODE)
    wanted = set(filter_repo_objects(listed, ignore_patterns=list(ignored)))
    if with_pickles and not matching(listed, WEIGHTS):
        wanted.update(matching(listed, *PICKLED_WEIGHTS))
    return sorted(wanted)


def matching(files: Iterable[str], *patterns: str) -> list[str]:
    return list(filter_repo_objects(list(files), allow_patterns=list(patterns)))


def require_weights(address: Address, files: Iterable[str], *, with_pickles: bool = False) -> None:
    if not matching(files, WEIGHTS, *(PICKLED_WEIGHTS if with_pickles else ())):
        pickles = matching(files, *PICKLES, "*.bin")
        held = f"; it has {enumerate_names(pickles)}, which could run code when read" if pickles else ""
        raise UnsafeWeightsError(f"{address} has no weights in the safetensors format{held}")


def refuse_code(address: Address, config: dict[str, Any], *, trust_remote_code: bool) -> bool:
    """Refuse a model that needs code from its repository, unless that is allowed."""
    classes = config.get("auto_map") or {}
    if config.get("model_type") == LIBRARY or not classes:
        return False
    if not trust_remote_code:
        listed = classes.values() if isinstance(classes, dict) else [classes]
        named = sorted({str(name[0] if isinstance(name, list) and name else name) for name in listed})
        raise RemoteCodeError(
            f"{address} needs code from the Hub, which would run on this machine: {enumerate_names(named)}; read it, "
            "and allow it with trust_remote_code=True (--trust_remote_code) if you trust it"
        )
    return True


def is_distribution(name: Any) -> bool:
    """Whether something is the name of a distribution, so that a command to install it can be shown."""
    return isinstance(name, str) and DISTRIBUTION.fullmatch(name) is not None


def warn_of_missing_plugin(config: dict[str, Any]) -> None:
    """Name the plugin that a model needs, where it is not installed."""
    provider = config.get("provider") if config.get("model_type") == LIBRARY else None
    if provider and installed_version(str(provider)) is None:
        install = f"; `pip install {provider}` before the model is loaded" if is_distribution(provider) else ""
        missing = f"the plugin {provider!r}, which is not installed{install}"
        warnings.warn(f"variant {config.get('variant')!r} comes from {missing}", MissingPluginWarning, stacklevel=3)


FRESH = ".zoo-fresh"  # The cache, next to snapshots/, for repeated downloads of existing files
UNFINISHED = ".zoo-unfinished-"  # Prefix of files next to snapshots/ that mark commits with an unfinished pull


def is_unfinished(snapshot: Path) -> bool:
    return _mark(snapshot).exists()


def mark_finished(snapshot: Path, revision: str) -> None:
    """Point the cache's revision to a complete commit; writes nothing if nothing changes (read-only caches)."""
    if is_unfinished(snapshot):
        _mark(snapshot).unlink(missing_ok=True)
    reference, commit = snapshot.parents[1] / "refs" / revision, snapshot.name
    if COMMIT.fullmatch(revision) or (reference.is_file() and reference.read_text(encoding="utf-8") == commit):
        return
    write_file(reference, commit)


def discard_damaged(snapshot: Path, entry: RepoFile) -> None:
    """Remove a file that differs from the Hub's list, so that the client downloads it again."""
    file = snapshot / entry.path
    if is_intact(entry, file):
        return
    # The link's target may belong to another file and be right: it is removed only if its name is this checksum.
    file.unlink(missing_ok=True)
    blob = snapshot.parents[1] / "blobs" / checksum_of(entry)
    if is_intact(entry, blob):
        return
    shared = blob.resolve() if blob.is_symlink() else None
    blob.unlink(missing_ok=True)
    if shared is not None and shared.is_file():
        from hf_xet import hash_files

        if hash_files([str(shared)])[0].hash != shared.name:  # Xet calls a blob that repositories share by its hash
            shared.unlink()


@contextmanager
def empty_cache(snapshot: Path) -> Iterator[Path]:
    """Have a cache with nothing in it for a while, on the same disk."""
    folder = snapshot.parents[1] / FRESH
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def adopt(fresh: Path, snapshot: Path, entry: RepoFile) -> None:
    """Take a verified file over from another cache, unless the same is there."""
    if is_intact(entry, snapshot / entry.path):
        return
    discard_damaged(snapshot, entry)
    blob = snapshot.parents[1] / "blobs" / checksum_of(entry)
    if not blob.exists():  # the client makes the link to it
        blob.parent.mkdir(parents=True, exist_ok=True)
        os.replace((fresh / entry.path).resolve(), blob)


def _mark(snapshot: Path) -> Path:
    return snapshot.parents[1] / f"{UNFINISHED}{snapshot.name}"


ATTEMPTS_TO_GET_INTACT = 3


def pull(
    repo_id: str,
    local_dir: str | Path | None = None,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    offline: bool = False,
    force_download: bool = False,
    trust_remote_code: bool = False,
    with_pickles: bool = False,
    token: str | bool | None = None,
    retry_policy: RetryPolicy | None = None,
) -> Path:
    """Pull a model from the Hub.

    Every file is compared with the Hub's checksum. A revision in the cache moves on only when all of its files are
    there and intact, so an interrupted pull leaves the old one in place, and the next pull goes on where it ended.

    Args:
        repo_id: "org/name", possibly with "@revision".
        local_dir: A folder to copy the files to, besides the cache: a new or empty one, or one of an earlier pull.
        revision: A branch, tag or commit, by default "main".
        cache_dir: The cache, by default huggingface_hub's.
        offline: Whether to only look into the cache.
        force_download: Whether to download what is in the cache already.
        trust_remote_code: Whether code from the repository may be pulled, for a model that needs it.
        with_pickles: Whether pickled weights may be pulled without safetensors, for a converter, which
            executes nothing of them.
        token: As for huggingface_hub: None for the one that is stored or in HF_TOKEN.
        retry_policy: Time-outs and retries.

    Returns:
        The folder with the model: `local_dir`, or the snapshot in the cache.

    Raises:
        HubError: When it cannot be had, differs from the Hub's checksums, has no safetensors, or needs code.
        OutputExistsError: When `local_dir` holds something else.
    """
    address = parse_address(repo_id, revision)
    if offline and force_download:
        raise ConfigError("offline and force_download were given, and nothing is downloaded offline: give one of both")
    if constants.HF_HUB_OFFLINE and force_download:
        raise ConfigError("force_download was given, and HF_HUB_OFFLINE is set: nothing is downloaded; leave one out")
    if offline or constants.HF_HUB_OFFLINE:
        snapshot, files = from_cache(address, cache_dir, trust_remote_code=trust_remote_code, with_pickles=with_pickles)
    else:
        hub = Hub(token, retry_policy)
        download = Download(hub, address, cache_dir, force_download, trust_remote_code, with_pickles)
        snapshot, files = download.run()
    warn_of_missing_plugin(read_object(snapshot / CONFIG))
    if local_dir is None:
        return snapshot
    return deliver(snapshot, files, Path(local_dir), f"{address.repo_id}@{snapshot.name}")


def from_cache(
    address: Address, cache_dir: str | Path | None, *, trust_remote_code: bool, with_pickles: bool
) -> tuple[Path, list[str]]:
    """Find a repository in the cache, without any connection: the folder of its commit, and the files."""
    place: dict[str, Any] = {"revision": address.revision, "cache_dir": cache_dir}
    try:
        folder = Path(snapshot_download(address.repo_id, local_files_only=True, **place))
    except (LocalEntryNotFoundError, OSError) as error:
        problem = f"{address} is not in the cache, or not completely"
        raise HubAccessError(f"{problem}; pull it once without offline") from error
    if is_unfinished(folder):
        raise HubAccessError(f"{address} is not completely in the cache: a pull was interrupted; pull it again")
    files = sorted(relative_files(folder))
    if damaged := [path for path in files if not is_intact_blob(folder / path)]:
        raise IntegrityError(f"{address} has been damaged in the cache: {enumerate_names(damaged)}; pull it again")
    if CONFIG not in files or not matching(files, WEIGHTS, *PICKLES, "*.bin"):
        raise HubAccessError(f"{address} is not completely in the cache, which holds {enumerate_names(files)}; pull it")
    require_weights(address, files, with_pickles=with_pickles)
    check_shards(folder)
    refuse_code(address, read_object(folder / CONFIG), trust_remote_code=trust_remote_code)
    return folder, files


@dataclass(frozen=True)
class Download:
    """A download into the cache."""

    hub: Hub
    address: Address
    cache_dir: str | Path | None
    force_download: bool
    trust_remote_code: bool  # Whether code may be downloaded
    with_pickles: bool  # Whether pickled weights may be pulled without safetensors

    def run(self) -> tuple[Path, list[str]]:
        """Download and verify all files that are wanted; only then the cache's revision moves on to the folder."""
        # The client, asked for a branch, would return an old snapshot when the Hub is down. It is asked for a commit.
        commit = self.hub.resolve(self.address)
        listed = self.hub.files(self.address, commit)
        require_weights(self.address, listed, with_pickles=self.with_pickles)
        if CONFIG not in listed:
            held = enumerate_names(listed)
            raise HubError(f"{self.address} has no {CONFIG}, so it is no checkpoint; it holds: {held}")
        if (size := listed[CONFIG].size) > LONGEST_ANSWER:
            raise HubError(f"{CONFIG} of {self.address} has {size:,} bytes by the Hub's list, and is read whole")
        cache_dir = expanded(self.cache_dir or constants.HF_HUB_CACHE).resolve()
        repository = repo_folder_name(repo_id=self.address.repo_id, repo_type="model")
        folder = cache_dir / repository / "snapshots" / commit  # where the client puts the files of a commit
        if self.force_download:
            # The client would replace what is there, for all repositories that share it, before anything is compared.
            with empty_cache(folder) as cache:
                same = replace(self.address, revision=commit)
                fresh, files = replace(self, address=same, cache_dir=cache, force_download=False).run()
                for path in files:
                    adopt(fresh, folder, listed[path])
        self._bring({CONFIG: listed[CONFIG]}, folder)
        needs_code = refuse_code(self.address, read_object(folder / CONFIG), trust_remote_code=self.trust_remote_code)
        wanted = files_to_pull(listed, with_code=needs_code, with_pickles=self.with_pickles)
        self._bring({path: listed[path] for path in wanted}, folder)
        check_shards(folder)
        mark_finished(folder, self.address.revision)
        return folder, wanted

    def _bring(self, entries: Mapping[str, RepoFile], folder: Path) -> None:
        """Have files in the cache as the Hub lists them: all are compared after the last one was downloaded."""
        commit = folder.name
        missing = [entry for path, entry in entries.items() if not (folder / path).is_file()]
        place = next(parent for parent in folder.parents if parent.is_dir())
        needed, free = sum(entry.size for entry in missing), shutil.disk_usage(place).free
        if needed > free:
            raise HubError(
                f"{enumerate_names(entry.path for entry in missing)} of {self.address} would take {needed:,} bytes by "
                f"the Hub's list, and {place} has {free:,}; nothing of it was downloaded"
            )
        for attempt in range(1, ATTEMPTS_TO_GET_INTACT + 1):
            if not all((folder / path).is_file() for path in entries):
                _mark(folder).parent.mkdir(parents=True, exist_ok=True)
                _mark(folder).touch()
            try:
                for path, entry in entries.items():
                    download = partial(self._download, entry, commit)
                    self.hub.ask(f"downloading {path}", self.address, download)
                damaged = [path for path, entry in entries.items() if not is_intact(entry, folder / path)]
                if not damaged:
                    return
                problem = IntegrityError(
                    f"{enumerate_names(damaged)} of {self.address} does not match the Hub's checksum, after {attempt} "
                    "downloads; it was removed from the cache"
                )
            except IntegrityError as error:
                problem = error
            # Either the files or the list were damaged on their way.
            listed = self.hub.files(self.address, commit)
            entries = {path: listed.get(path, entry) for path, entry in entries.items()}
            for entry in entries.values():
                discard_damaged(folder, entry)
        raise problem

    def _download(self, entry: RepoFile, commit: str) -> None:
        timeout = min(self.hub.retry_policy.timeout, constants.HF_HUB_ETAG_TIMEOUT)
        options: dict[str, Any] = {"revision": commit, "cache_dir": self.cache_dir, "etag_timeout": timeout}
        with expecting(commit, entry):
            self.hub.api.hf_hub_download(self.address.repo_id, entry.path, **options)
