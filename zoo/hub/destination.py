"""Where a push goes: the repository and its branch, made where they are not there, and what is stale in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from .addresses import Address
from .client import Hub
from .errors import HubError, RevisionMissingError, VisibilityError
from .folders import INDEX, WEIGHTS


def require_repository(hub: Hub, address: Address, private: bool | None) -> Address:
    """Create the repository unless it is there."""
    url = hub.ask(
        "creating the repository",
        address,
        lambda: hub.api.create_repo(address.repo_id, private=private, exist_ok=True),
    )
    if url.repo_type not in (None, "model"):
        raise HubError(f"{address.repo_id} is the name of a {url.repo_type}, so no model can have it")
    address = replace(address, repo_id=url.repo_id)
    if private is not None:
        info = hub.ask("looking up who sees the repository", address, lambda: hub.api.model_info(address.repo_id))
        if bool(info.private) != private:
            is_now, wanted = ("public", "private") if private else ("private", "public")
            raise VisibilityError(
                f"{address.repo_id} is there already and is {is_now}, but {wanted} was asked for; nothing was pushed: "
                f"change it at {hub.api.endpoint}/{address.repo_id}/settings, or push to another repository"
            )
    return address


def require_branch(hub: Hub, address: Address) -> str:
    """Create the branch unless it is there."""
    try:
        return hub.resolve(address)
    except RevisionMissingError:
        hub.ask(
            "creating the branch",
            address,
            lambda: hub.api.create_branch(address.repo_id, branch=address.revision, exist_ok=True),
        )
        return hub.resolve(address)


def stale_weights(files: Iterable[str], there: Iterable[str]) -> list[str]:
    """List weights of an earlier push that a loader would prefer to, or mix up with, the new ones."""

    def are_weights(path: str) -> bool:
        return "/" not in path and (fnmatchcase(path, WEIGHTS) or path == INDEX)

    pushed = set(files)
    if not any(are_weights(path) for path in pushed):
        return []
    return sorted(path for path in there if are_weights(path) and path not in pushed)
