"""From the Hub to a folder: complete, verified, safetensors only, and no code that was not allowed."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from huggingface_hub import constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
from huggingface_hub.hf_api import RepoFile

from zoo.errors import enumerate_names

from .acceptance import files_to_pull, refuse_code, require_weights, warn_of_missing_plugin
from .addresses import COMMIT, Address, parse_address
from .checksums import is_intact, is_intact_blob
from .client import LIBRARY, Hub
from .delivery import deliver
from .errors import HubAccessError, HubError, IntegrityError
from .folders import CONFIG, check_shards, read_json
from .retries import Patience

ATTEMPTS_TO_GET_INTACT = 3


@dataclass(frozen=True)
class Snapshot:
    """A commit of a repository on this machine.

    Args:
        address: Repository and revision.
        commit: The commit's hash.
        folder: Where the files are.
        files: Their paths.
    """

    address: Address
    commit: str
    folder: Path
    files: tuple[str, ...]


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
    patience: Patience | None = None,
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
        with_pickles: Whether pickled weights may be pulled where there are no safetensors, for a converter, which
            executes nothing of them.
        token: As for huggingface_hub: None for the one that is stored or in HF_TOKEN.
        patience: Time-outs and retries.

    Returns:
        The folder with the model: `local_dir`, or the snapshot in the cache.

    Raises:
        HubError: When it cannot be had, is not what the Hub says it is, has no safetensors, or needs code.
        OutputExistsError: When `local_dir` holds something else.
    """
    address = parse_address(repo_id, revision)
    if offline or constants.HF_HUB_OFFLINE:
        snapshot = from_cache(address, cache_dir, trust_remote_code=trust_remote_code, with_pickles=with_pickles)
    else:
        hub = Hub(token, patience)
        download = Download(hub, address, cache_dir, force_download, trust_remote_code, with_pickles)
        snapshot = download.run()
    warn_of_missing_plugin(read_json(snapshot.folder / CONFIG))
    if local_dir is None:
        return snapshot.folder
    return deliver(snapshot.folder, snapshot.files, Path(local_dir), f"{address.repo_id}@{snapshot.commit}")


def from_cache(
    address: Address, cache_dir: str | Path | None, *, trust_remote_code: bool = False, with_pickles: bool = False
) -> Snapshot:
    """Find a repository in the cache, without any connection.

    Args:
        address: Repository and revision.
        cache_dir: The cache, by default huggingface_hub's.
        trust_remote_code: Whether a model that needs code is welcome.
        with_pickles: Whether pickled weights are.

    Returns:
        What is there.

    Raises:
        HubAccessError: When it is not there.
        IntegrityError: When a file has been damaged since.
        HubError: When it is not usable.
    """
    try:
        found = snapshot_download(
            address.repo_id, revision=address.revision, cache_dir=cache_dir, local_files_only=True
        )
    except (LocalEntryNotFoundError, OSError) as error:
        raise HubAccessError(
            f"{address} is not in the cache, or not completely; pull it once without offline"
        ) from error
    folder = Path(found)
    files = tuple(sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()))
    damaged = [path for path in files if not is_intact_blob(folder / path)]
    if damaged:
        raise IntegrityError(f"{address} has been damaged in the cache: {enumerate_names(damaged)}; pull it again")
    require_weights(address, files, with_pickles=with_pickles)
    if CONFIG not in files:
        raise HubError(f"{address} has no {CONFIG} in the cache, so it is no checkpoint")
    check_shards(folder)
    refuse_code(address, read_json(folder / CONFIG), trust_remote_code=trust_remote_code)
    return Snapshot(address, folder.name, folder, files)


@dataclass(frozen=True)
class Download:
    """A download into the cache.

    Args:
        hub: The connection.
        address: Repository and revision.
        cache_dir: The cache, by default huggingface_hub's.
        force_download: Whether to download what is there already.
        trust_remote_code: Whether code may be downloaded.
        with_pickles: Whether pickled weights may be, where there are no safetensors.
    """

    hub: Hub
    address: Address
    cache_dir: str | Path | None = None
    force_download: bool = False
    trust_remote_code: bool = False
    with_pickles: bool = False

    def run(self) -> Snapshot:
        """Download what is missing, verify everything, and only then let the cache's revision move on.

        Returns:
            What is there then.

        Raises:
            HubError: When that cannot be done.
        """
        # The client, asked for a branch, would return an old snapshot when the Hub is down. It is asked for a commit.
        commit = self.hub.resolve(self.address)
        listed = self.hub.files(self.address, commit)
        require_weights(self.address, listed, with_pickles=self.with_pickles)
        if CONFIG not in listed:
            raise HubError(
                f"{self.address} has no {CONFIG}, so it is no checkpoint; it holds: {enumerate_names(listed)}"
            )
        folder = self._fetch(listed[CONFIG], commit).parent
        needs_code = refuse_code(self.address, read_json(folder / CONFIG), trust_remote_code=self.trust_remote_code)
        wanted = files_to_pull(listed, with_code=needs_code, with_pickles=self.with_pickles)
        for path in wanted:
            if path != CONFIG:
                self._fetch(listed[path], commit)
        check_shards(folder)
        remember_revision(folder, self.address.revision, commit)
        return Snapshot(self.address, commit, folder, tuple(wanted))

    def _fetch(self, entry: RepoFile, commit: str) -> Path:
        """Have one file in the cache, as the Hub lists it."""
        path, forced = entry.path, self.force_download
        for _ in range(ATTEMPTS_TO_GET_INTACT):
            pointer = self.hub.ask(f"downloading {path}", self.address, partial(self._download, path, commit, forced))
            if is_intact(entry, pointer):
                return pointer
            # Either the file or the list was damaged on its way.
            forced, entry = True, self.hub.files(self.address, commit).get(path, entry)
        pointer.resolve().unlink(missing_ok=True)
        pointer.unlink(missing_ok=True)
        raise IntegrityError(
            f"{path} of {self.address} is not what the Hub says it is, after {ATTEMPTS_TO_GET_INTACT} downloads; it "
            "was removed from the cache"
        )

    def _download(self, path: str, commit: str, forced: bool) -> Path:
        return Path(
            hf_hub_download(
                self.address.repo_id,
                path,
                revision=commit,
                cache_dir=self.cache_dir,
                force_download=forced,
                etag_timeout=min(self.hub.patience.timeout, constants.HF_HUB_ETAG_TIMEOUT),
                token=self.hub.token,
                endpoint=self.hub.api.endpoint,
                library_name=LIBRARY,
                library_version=self.hub.api.library_version,
            )
        )


def remember_revision(snapshot: Path, revision: str, commit: str) -> None:
    """Let the cache's revision point to a commit, as the client does: in refs/, beside snapshots/.

    Args:
        snapshot: The commit's folder in the cache.
        revision: The branch or tag.
        commit: The commit's hash.
    """
    if COMMIT.fullmatch(revision):
        return
    reference = snapshot.parents[1] / "refs" / revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    temporary = reference.with_name(f".{reference.name}.{uuid.uuid4().hex}")
    temporary.write_text(commit)
    os.replace(temporary, reference)
