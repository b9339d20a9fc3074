"""One commit, once: even if the Hub's answer is lost, the files are there completely or not at all.

The client's `create_commit(parent_commit=)` makes it. `tests/hub/test_faults.py` needs the look for one
after a lost answer.
"""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete

from zoo.base.interrupts import interruptible

from .addresses import Address
from .checksums import is_intact
from .client import Hub
from .errors import (
    HubConflictError,
    HubError,
    IntegrityError,
    RevisionMissingError,
    UnconfirmedCommitError,
    UnconfirmedCommitWarning,
)
from .folders import PushedFile
from .retries import origin, passes, status

STALE_PARENT = 412  # The Hub's status for a commit with an outdated parent
LONGEST_LOOK = 5.0  # Seconds for which the Hub is asked after Ctrl-C what became of a commit


@dataclass(frozen=True)
class Landed:
    """A commit that is there."""

    commit: str
    pull_request: str | None = None  # The address of the pull request that holds it, if any


@dataclass(frozen=True)
class Change:
    """The changes of one commit."""

    hub: Hub
    address: Address  # Repository and branch
    parent: str  # The commit on which it is based; if the branch has moved on, nothing is changed
    files: Sequence[PushedFile]
    deleted: Sequence[str]
    message: str
    create_pr: bool = False  # Whether to open a pull request instead of moving the branch

    def commit(self) -> Landed:
        """Upload the files, commit and compare; a warning if the Hub has confirmed the commit and gives no list.

        The client never repeats a commit, since an answer may have been lost after the commit was made. Repeating it is
        safe with the parent named: the Hub refuses it the second time, and then the commit is found where it landed.
        """
        api, repo_id = self.hub.api, self.address.repo_id
        additions = [CommitOperationAdd(file.path, file.content) for file in self.files]
        operations: list[Any] = [*additions, *(CommitOperationDelete(path) for path in self.deleted)]
        known_requests = self._pull_requests() if self.create_pr else {}
        # Pull requests are opened against the main branch, which the client wants to be left out then.
        revision = None if self.create_pr else self.address.revision
        at: dict[str, Any] = {"revision": revision, "create_pr": self.create_pr}

        def upload() -> None:
            api.preupload_lfs_files(repo_id, additions, **at, free_memory=False)

        def commit() -> Landed:
            options: dict[str, Any] = {**at, "commit_message": self.message, "parent_commit": self.parent}
            try:
                made: CommitInfo = api.create_commit(repo_id, operations, **options)
            except Exception as error:
                stale = status(error) == STALE_PARENT
                unread = isinstance(error, HubError)  # the answer, which may have been a confirmation
                if not (stale or unread or passes(error)) or _was_never_sent(error):
                    raise
                try:
                    landed = self._find(known_requests)
                except HubError as unanswered:
                    raise UnconfirmedCommitError(
                        f"the Hub did not answer the commit to {self.address}, which may have been made or not; look "
                        f"at {self._history_page}, then push again: {unanswered}"
                    ) from None
                if landed:
                    return landed
                if stale:
                    raise HubConflictError(
                        f"{self.address} was changed by another push meanwhile; nothing was pushed, push again to "
                        "build on their change"
                    ) from None
                raise
            return Landed(made.oid, made.pr_url)

        self.hub.ask("uploading", self.address, upload, client_retries=True)
        landed = None
        try:
            landed = self.hub.ask("committing", self.address, commit)
            return self._confirm(landed, known_requests)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._what_landed(landed, known_requests)) from None

    def _what_landed(self, landed: Landed | None, known_requests: dict[str, str]) -> str:
        """Describe after Ctrl-C what became of the commit, with one short look where its answer is missing."""
        with suppress(HubError, TimeoutError, KeyboardInterrupt):
            landed = landed or interruptible(lambda: self._find(known_requests), LONGEST_LOOK)
        if landed is not None:
            return f"{self.address} was pushed (commit {landed.commit})"
        return f"the commit to {self.address} may have been made or not; look at {self._history_page}"

    @property
    def _history_page(self) -> str:
        return f"{self.hub.api.endpoint}/{self.address.repo_id}/commits/{self.address.revision}"

    def _pull_requests(self) -> dict[str, str]:
        """The newest commit of every pull request, by its reference."""

        def refs() -> dict[str, str]:
            found = self.hub.api.list_repo_refs(self.address.repo_id, include_pull_requests=True)
            return {ref.ref: ref.target_commit for ref in found.pull_requests or ()}

        return self.hub.ask("listing pull requests", self.address, refs)

    def _find(self, known_requests: dict[str, str]) -> Landed | None:
        """Look whether the commit landed although its answer did not."""
        if self.create_pr:
            for ref, commit in self._pull_requests().items():
                if ref not in known_requests and self._holds(commit):
                    number = ref.rpartition("/")[2]
                    return Landed(commit, f"{self.hub.api.endpoint}/{self.address.repo_id}/discussions/{number}")
            return None

        def history() -> list[str]:
            commits = self.hub.api.list_repo_commits(self.address.repo_id, revision=self.address.revision)
            return [commit.commit_id for commit in commits]

        ids = self.hub.ask("looking for the commit", self.address, history, client_retries=True)
        place = ids.index(self.parent) if self.parent in ids else 0
        return Landed(ids[place - 1]) if place and self._holds(ids[place - 1]) else None

    def _holds(self, commit: str) -> bool:
        """Whether a commit has exactly the files that were sent, and none that were to be removed."""
        listed = self.hub.files(self.address, commit)
        return not any(path in listed for path in self.deleted) and all(
            file.path in listed and is_intact(listed[file.path], file.content) for file in self.files
        )

    def _confirm(self, landed: Landed, known_requests: dict[str, str]) -> Landed:
        """Compare what was committed with what was sent; the answer itself may have been damaged on its way."""
        for _ in range(self.hub.retry_policy.attempts):
            try:
                with suppress(RevisionMissingError):
                    if self._holds(landed.commit):
                        return landed
                landed = self._find(known_requests) or landed
            except HubError as error:
                warnings.warn(
                    f"commit {landed.commit} was made, but its files could not be compared with what was sent: {error}",
                    UnconfirmedCommitWarning,
                    stacklevel=4,
                )
                return landed
        problem = f"commit {landed.commit} was made, but by the Hub's list {self.address} does not hold what was sent"
        raise IntegrityError(f"{problem}; the commit before it is {self.parent}")


def _was_never_sent(error: Exception) -> bool:
    """Whether it was another request than the commit that failed: the client checks a card and asks for modes first."""
    try:
        return "/commit/" not in str(origin(error).request.url)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # an unreadable answer has no URL
        return False
