"""The Hugging Face Hub: push and pull, on huggingface_hub and its cache, safe against what it leaves open."""

from .addresses import Address, is_address, parse_address
from .errors import (
    HubAccessError,
    HubConflictError,
    HubError,
    HubUnreachableError,
    IntegrityError,
    RemoteCodeError,
    RepoIdError,
    RevisionMissingError,
    UnsafeWeightsError,
)
from .listing import HubModel, list_hub
from .pulling import pull
from .pushing import PushReport, push
from .retries import Patience

__all__ = [
    "Address",
    "HubAccessError",
    "HubConflictError",
    "HubError",
    "HubModel",
    "HubUnreachableError",
    "IntegrityError",
    "Patience",
    "PushReport",
    "RemoteCodeError",
    "RepoIdError",
    "RevisionMissingError",
    "UnsafeWeightsError",
    "is_address",
    "list_hub",
    "parse_address",
    "pull",
    "push",
]
