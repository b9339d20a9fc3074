"""Names of repositories: "org/name", "org/name@revision", "hf-hub:org/name@revision"."""

import re
from dataclasses import dataclass
from pathlib import Path

from zoo.registry.weights import HUB

from .errors import RepoIdError

MAIN = "main"  # The revision that is meant when none is given

REVISION = re.compile(r"(?!.*(\.\.|//|@\{))[A-Za-z0-9_][A-Za-z0-9_./+-]*(?<![/.])")
"""A branch, tag or commit: what git allows, less what could leave a folder."""

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[^@]+)?")
"""Form of a repository's name in place of a folder."""

COMMIT = re.compile(r"[0-9a-f]{40}")  # A commit's full hash


@dataclass(frozen=True)
class Address:
    """A repository and a revision of it.

    Args:
        repo_id: "org/name", or "name" of an old or of one's own repository.
        revision: A branch, a tag or a commit.
    """

    repo_id: str
    revision: str = MAIN

    def __str__(self) -> str:
        return self.repo_id if self.revision == MAIN else f"{self.repo_id}@{self.revision}"


def parse_address(text: str, revision: str | None = None) -> Address:
    """Read a repository's name.

    Args:
        text: "org/name", possibly with "@revision" after it or "hf-hub:" before it.
        revision: The revision, unless the name has it.

    Raises:
        RepoIdError: When it cannot be a repository's name, or names another revision than `revision`.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    repo_id, at, named = text.removeprefix(HUB).partition("@")
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise RepoIdError(
            f"{text!r} is not the name of a repository; valid are 'name' and 'org/name' of letters, digits, '-', '_' "
            "and '.', followed by '@revision' if wanted"
        ) from error
    if at and revision is not None and named != revision:
        raise RepoIdError(f"{text!r} names revision {named!r}, but revision={revision!r} was given as well")
    chosen = named if at else revision or MAIN
    if not REVISION.fullmatch(chosen):
        raise RepoIdError(f"{chosen!r} is not a revision; valid are a branch, a tag and a commit")
    return Address(repo_id, chosen)


def is_address(text: str) -> bool:
    """Whether a name begins with "hf-hub:"."""
    return text.startswith(HUB)


def is_repository(path: str | Path) -> bool:
    """Whether a repository is meant rather than a folder."""
    return isinstance(path, str) and (
        is_address(path) or (REPOSITORY.fullmatch(path) is not None and not Path(path).exists())
    )
