"""How often to ask again, how long to wait, and which failures pass by themselves."""

import importlib
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils._http import parse_ratelimit_headers

from .errors import HubError

T = TypeVar("T")

TRANSPORT_ERROR: type[Exception] = HfHubHTTPError.__bases__[0]  # Base of the errors of the client's HTTP library

CONNECT_ERROR: type[Exception] = importlib.import_module(TRANSPORT_ERROR.__module__.partition(".")[0]).ConnectError
"""Its errors for a failed connection."""

FIRST_CONTACTS = 2  # Attempts before a first answer: a machine without a network should fail soon
PASSING_STATUS = frozenset({408, 425, 429})  # Refusals that pass by themselves; so do all from 500 on
BAD_REQUEST = 400  # The first status that is a refusal

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, NameError, AssertionError)
"""The client's errors for unexpected answers."""

XET = re.compile(r"(CAS Client|Network|Server|Request) error", re.IGNORECASE)
"""Messages of failed requests of the Xet client, which raises untyped errors."""


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait for the Hub.

    Args:
        timeout: Seconds without a single byte after which a connection is given up.
        attempts: How often a request is made in all, where the client would make it once.
        first_wait: Seconds before the second attempt; each further wait is twice as long, less up to half at random.
        longest_wait: Upper bound of a wait. A Hub that asks for a longer one is not asked again.
    """

    timeout: float = 60.0
    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 60.0

    def wait(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait after a number of attempts, partly random: clients that failed together come back apart."""
        backoff = min(self.first_wait * 2 ** (attempt - 1), self.longest_wait)
        return random.uniform(0.5, 1.0) * backoff + retry_after(error)


def origin(error: BaseException) -> BaseException:
    """Find the original error of the client's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TRANSPORT_ERROR):
            return cause
        cause = cause.__cause__
    return error


def status(error: BaseException) -> int | None:
    found = origin(error)
    return found.response.status_code if isinstance(found, HfHubHTTPError) else None


def retry_after(error: BaseException) -> float:
    found = origin(error)
    return asked_wait(found.response) if isinstance(found, HfHubHTTPError) else 0.0


def asked_wait(response: Any) -> float:
    """Seconds that an answer asks to wait."""
    if response.status_code < BAD_REQUEST:
        return 0.0
    limits = parse_ratelimit_headers(response.headers)
    exhausted = float(limits.reset_in_seconds) if limits is not None and limits.remaining == 0 else 0.0
    value = response.headers.get("retry-after", "").strip()
    return max(float(value) if value.isdigit() else 0.0, exhausted)


def passes(error: BaseException) -> bool:
    """Whether asking again may help."""
    found = origin(error)
    if isinstance(found, HfHubHTTPError):
        return found.response.status_code in PASSING_STATUS or found.response.status_code >= 500
    if isinstance(found, TRANSPORT_ERROR):
        return True
    if isinstance(error, (OfflineModeIsEnabled, HFValidationError, HubError)):
        return False
    if isinstance(error, OSError):
        return error.errno is None  # a number comes from the operating system: a full disk, a missing file
    return isinstance(error, (*UNREADABLE, RuntimeError))


def persist(
    call: Callable[[], T], retry_policy: RetryPolicy, *, client_retries: bool = False, first_contact: bool = False
) -> T:
    """Call until it succeeds, or until asking again is of no use."""
    for attempt in range(1, retry_policy.attempts + 1):
        try:
            return call()
        except Exception as error:
            asked_again = client_retries or isinstance(error, LocalEntryNotFoundError)
            of_xet = isinstance(error, (RuntimeError, OSError)) and XET.search(str(error)) is not None
            exhausted = (asked_again and isinstance(origin(error), TRANSPORT_ERROR)) or of_xet
            absent = first_contact and attempt >= FIRST_CONTACTS and isinstance(origin(error), CONNECT_ERROR)
            if attempt == retry_policy.attempts or exhausted or absent or not passes(error):
                raise
            if retry_after(error) > retry_policy.longest_wait:
                raise
            time.sleep(retry_policy.wait(attempt, error))
    raise AssertionError("a number of attempts below 1 was given")
