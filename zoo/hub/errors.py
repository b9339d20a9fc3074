"""Errors of the Hub, and their one-line messages from the client's exceptions."""

import re

from zoo.base.errors import ZooError, ZooWarning
from zoo.base.printed import printable

SECRET = re.compile(
    r"""\b(?:hf|api)_[\w.-]{8,}  # tokens of users, organisations and applications
    | (?<=Bearer\ )\S+
    | (?<=://)[^\s/@]+(?=@)  # a name and a password
    | (?<=\?)[^\s'"]*(?:[Ss]ignature|[Tt]oken)=[^\s'"]*  # the signature of an address
    """,
    re.VERBOSE,
)
"""Access tokens and signatures of addresses, anywhere in a text."""


class HubError(ZooError, OSError):
    """Something went wrong with the Hugging Face Hub."""

    exit_code = 1


class HubInputError(HubError):
    """Something that was given cannot be pushed or pulled: base of what follows from the input alone."""

    exit_code = 2


class RepoIdError(HubInputError, ValueError):
    """Not the name of a repository, or not a revision."""


class HubAccessError(HubError):
    """The repository is not there for this user: missing, private, gated, or the token does not allow it."""


class RevisionMissingError(HubAccessError):
    """The repository has no such branch, tag or commit."""


class HubUnreachableError(HubError):
    """The Hub did not answer, or not usably, however often it was asked."""


class HubConflictError(HubError):
    """The repository was changed by another push meanwhile."""


class IntegrityError(HubError):
    """A file differs from the Hub's checksum."""


class UnconfirmedCommitError(HubError):
    """A commit may have been made, but the Hub cannot be asked."""


class UnconfirmedCommitWarning(ZooWarning):
    """A commit was made, but the Hub does not list its files."""


class KeptCardWarning(ZooWarning):
    """A README was kept that differs from the card of what was pushed."""


class VisibilityError(HubInputError):
    """A repository is public that should be private, or the other way round."""


class UnsafeWeightsError(HubInputError):
    """A repository has no weights in the safetensors format."""


class SecretError(HubInputError):
    """A file that is to be pushed holds an access token or another secret."""


class RemoteCodeError(HubInputError):
    """The repository's model needs code from the repository, which was not allowed."""


def without_secrets(text: object, token: str | bool | None = None) -> str:
    line = printable(" ".join(str(text).split()))
    if isinstance(token, str) and token:
        line = line.replace(token, "***")
    return SECRET.sub("***", line)
