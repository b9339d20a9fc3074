"""huggingface_hub's client, with time-outs, retries and errors of one line; and the list of the zoo's models there."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from huggingface_hub import HfApi, get_session, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from zoo.base.errors import suggest

from .addresses import COMMIT, Address
from .checksums import checksum_of
from .errors import HubAccessError, HubError, HubUnreachableError, RevisionMissingError, without_secrets
from .retries import RetryPolicy, origin, passes, persist, retry_after, status
from .session import SESSION, budget

T = TypeVar("T")

LIBRARY = "transformer-zoo"  # The name under which the Hub lists the zoo's models

UNAUTHORIZED, FORBIDDEN = 401, 403


def token_in_use(token: str | bool | None) -> str | None:
    """The token that requests are made with: the given one, or the one that is stored or in HF_TOKEN."""
    return token if isinstance(token, str) else (get_token() if token is not False else None)


class Hub:
    """A connection to the Hub, with a token as for huggingface_hub."""

    def __init__(self, token: str | bool | None = None, retry_policy: RetryPolicy | None = None) -> None:
        from zoo import __version__

        self.token = token
        self._secret = token_in_use(token)
        self.retry_policy = retry_policy or RetryPolicy()
        self.api = HfApi(token=token, library_name=LIBRARY, library_version=__version__)
        self._answered = False
        SESSION.install(self.retry_policy)

    def ask(self, purpose: str, address: Address | None, call: Callable[[], T], *, client_retries: bool = False) -> T:
        """Make a request, again if need be."""
        try:
            retries = {"client_retries": client_retries, "first_contact": not self._answered}
            answer = persist(budget()(call), self.retry_policy, **retries)
            self._answered = True
            return answer
        except Exception as error:
            translated = self.explain(error, purpose, address)
            if translated is None:
                raise
            # The client's own exceptions quote addresses and answers: `from None` keeps them out of the traceback.
            raise translated from None

    def explain(self, error: Exception, purpose: str, address: Address | None) -> HubError | None:
        """Error that explains an exception of the client in one line; None if it has nothing to do with the Hub."""
        if isinstance(error, HubError):
            return error
        where = str(address) if address is not None else self.api.endpoint
        repo_id = address.repo_id if address is not None else ""
        answer, cause = status(error), origin(error)
        if isinstance(error, OfflineModeIsEnabled):
            return HubUnreachableError(f"HF_HUB_OFFLINE is set, so nothing can be done at {where} while {purpose}")
        if isinstance(cause, GatedRepoError):
            return HubAccessError(f"{where} is gated: ask for access at {self.api.endpoint}/{repo_id}, then log in")
        if isinstance(cause, RevisionNotFoundError):
            return RevisionMissingError(f"{repo_id} has no revision {self._revisions(address)}")
        if isinstance(cause, HfHubHTTPError) and answer in (UNAUTHORIZED, FORBIDDEN):
            detail = f" ({without_secrets(cause.server_message, self._secret)})" if cause.server_message else ""
            if answer == FORBIDDEN:
                problem = f"the token in use is not allowed what is needed while {purpose}"
                return HubAccessError(f"{problem} at {where}{detail}")
            if isinstance(cause, RepositoryNotFoundError):
                problem = f"{where} does not exist, or is private and no valid token was sent"
                return HubAccessError(f"{problem}: `hf auth login` or HF_TOKEN")
            return HubAccessError(f"the Hub does not accept the token in use, or needs one, while {purpose}{detail}")
        if isinstance(cause, RepositoryNotFoundError):
            return HubAccessError(f"{where} does not exist, or is private and the token in use may not see it")
        if passes(error):
            code = f"{answer} " if answer is not None else ""
            wait = retry_after(error)
            asks = f"; it asks to wait {wait:.0f} s" if wait else ""
            detail = without_secrets(f"{code}{type(cause).__name__}: {cause}", self._secret)
            return HubUnreachableError(f"the Hub gave no usable answer while {purpose} ({where}){asks}: {detail[:300]}")
        if isinstance(cause, HfHubHTTPError):
            detail = without_secrets(cause.server_message or cause, self._secret)
            return HubError(f"the Hub refused while {purpose} ({where}): {detail[:300]}")
        if isinstance(error, OSError) and error.errno is not None:
            file = f" {error.filename}" if error.filename else ""
            return HubError(f"{os.strerror(error.errno)}{file}, while {purpose} ({where})")
        return None

    def _revisions(self, address: Address | None) -> str:
        """The revision that is missing, with branches and tags in its place where the Hub lists them."""
        if address is None:
            return repr("")
        missing = repr(address.revision)
        try:
            refs = self.api.list_repo_refs(address.repo_id)
        except Exception as error:
            if passes(error) or isinstance(origin(error), HfHubHTTPError):
                return missing
            raise
        names = [ref.name for ref in (*refs.branches, *refs.tags)]
        if address.revision in names:
            return f"{missing} by the Hub's answer, although the Hub lists it; try again"
        return f"{missing}; valid: {', '.join(names)}{suggest(address.revision, names)}"

    def reach(self) -> None:
        """Make sure that the Hub is there, before something is asked that the client itself would repeat for long."""
        self.ask("connecting", None, lambda: get_session().head(self.api.endpoint))

    @contextmanager
    def cached_if_unreachable(self) -> Iterator[None]:
        """Let libraries that use the client take what is in the cache at once, where no Hub can be reached."""
        try:
            self.reach()
        except HubUnreachableError:
            with SESSION.closed():
                yield
        else:
            yield

    def resolve(self, address: Address) -> str:
        def head() -> str:
            sha = str(self.api.model_info(address.repo_id, revision=address.revision).sha)
            if not COMMIT.fullmatch(sha):
                raise ValueError(f"{sha!r} is not a commit")
            return sha

        return self.ask("looking up the revision", address, head)

    def files(self, address: Address, commit: str) -> dict[str, RepoFile]:

        def tree() -> dict[str, RepoFile]:
            entries = self.api.list_repo_tree(address.repo_id, recursive=True, revision=commit)
            files = {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}
            for entry in files.values():
                checksum_of(entry)
            return files

        return self.ask("listing the files", address, tree, client_retries=True)


@dataclass(frozen=True)
class HubModel:
    """A model of the zoo on the Hub."""

    repo_id: str  # Its repository
    pipeline: str | None  # The Hub's name of its task
    tags: tuple[str, ...]  # The repository's tags, among them the variant's name
    private: bool  # Whether it is private
    last_modified: str | None  # When it was last changed, as ISO 8601


def list_hub(owner: str, *, token: str | bool | None = None, retry_policy: RetryPolicy | None = None) -> list[HubModel]:
    """List the zoo's models of a user or an organisation: those with the zoo's library tag.

    Arguments as for [`zoo.pull`][]; the models are sorted by name.

    Raises:
        HubError: When the Hub cannot be asked.
    """
    hub = Hub(token, retry_policy)
    hub.reach()

    def models() -> list[HubModel]:
        found = []
        for model in hub.api.list_models(author=owner, filter=LIBRARY):
            tags = tuple(tag for tag in model.tags or () if tag != LIBRARY)
            changed = model.last_modified.isoformat() if model.last_modified else None
            found.append(HubModel(model.id, model.pipeline_tag, tags, bool(model.private), changed))
        return sorted(found, key=lambda model: model.repo_id)

    return hub.ask(f"listing the models of {owner}", None, models, client_retries=True)
