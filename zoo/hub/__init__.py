"""The Hugging Face Hub: push and pull, on huggingface_hub and its cache, safe against what it leaves open.

The client is imported on use: every verb checks for addresses, and few connect.
"""

from typing import TYPE_CHECKING

from zoo.base.lazy import declared_in, lazy_names

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
    SecretError,
    UnsafeWeightsError,
)

if TYPE_CHECKING:
    from .client import HubModel, list_hub
    from .pulling import pull
    from .pushing import PushReport, push
    from .retries import RetryPolicy

# fmt: off
__all__ = [
    "Address", "HubAccessError", "HubConflictError", "HubError", "HubModel", "HubUnreachableError", "IntegrityError",
    "PushReport", "RemoteCodeError", "RepoIdError", "RetryPolicy", "RevisionMissingError", "SecretError",
    "UnsafeWeightsError", "is_address", "list_hub", "parse_address", "pull", "push",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, declared_in(__file__))
