"""Byte budgets: no answer is read further than what was asked for can be long."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from zoo.base.printing import printable

from .errors import HubError, IntegrityError
from .retries import TRANSPORT_ERROR

LONGEST_ANSWER = 64 << 20
"""Bytes of one answer, and of all answers to one question, such as the pages of a list: 200,000 files."""

LEAST = 16 << 10
"""Bytes that an answer counts for however short it is, which limits the number of pages."""

OK = (200, 206)

STREAM: Any = importlib.import_module(TRANSPORT_ERROR.__module__.partition(".")[0]).SyncByteStream


@dataclass
class Budget:
    """Bytes that may still be read of answers to one question."""

    left: int = LONGEST_ANSWER


_BUDGET: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def budget() -> Iterator[None]:
    """Limit all answers of a block together."""
    token = _BUDGET.set(Budget())
    try:
        yield
    finally:
        _BUDGET.reset(token)


class BoundedBody(STREAM):
    """The body of an answer, up to a number of bytes.

    Args:
        body: The body.
        longest: How many bytes it may have.
        too_long: Raised when it has more.
        spent: Counts what was read.
    """

    def __init__(self, body: Any, longest: int, too_long: HubError, spent: Budget | None = None) -> None:
        self.body, self.longest, self.too_long, self.spent = body, longest, too_long, spent

    def __iter__(self) -> Iterator[bytes]:
        read = 0
        for part in self.body:
            read += len(part)
            if self.spent is not None:
                self.spent.left -= len(part)
            if read > self.longest:
                raise self.too_long
            yield part

    def close(self) -> None:
        """Close the body."""
        self.body.close()


def limit_body(response: Any, file_size: int | None) -> None:
    """Limit how far an answer is read.

    Downloads of other libraries by the same client are not limited.

    Args:
        response: An answer, of which nothing was read.
        file_size: The listed size of the file that is downloaded; None where no file is.
    """
    url, spent = response.request.url, _BUDGET.get()
    where = printable(f"{url.host}{url.path}")
    is_file = response.request.method == "GET" and response.status_code in OK and "/api/" not in url.path
    if is_file and file_size is not None:
        longest, spent = file_size, None
        problem: HubError = IntegrityError(f"{where} sends more than the {file_size} bytes that the Hub lists")
    elif is_file and spent is None:
        return
    else:
        if spent is not None:
            spent.left -= LEAST
        longest = LONGEST_ANSWER if spent is None else max(spent.left, 0)
        problem = HubError(f"{where} sends more than {LONGEST_ANSWER >> 20} MiB in answer to one question")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        problem = HubError(f"{where} sends a packed answer, although it was asked not to")
        longest = 0
    response.stream = BoundedBody(response.stream, longest, problem, spent)
