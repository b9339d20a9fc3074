"""Limits of every request to the Hub: time-out, longest wait, number of bytes, and listed files."""

from __future__ import annotations

import copy
import importlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from huggingface_hub import constants, get_session, hf_raise_for_status, set_client_factory
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import _xet as client

from zoo.base.interrupts import interruptible
from zoo.base.printed import printable

from .checksums import checksum_of
from .errors import HubError, HubUnreachableError, IntegrityError
from .retries import TRANSPORT_ERROR, RetryPolicy, asked_wait

SWITCH, HUB = "HF_HUB_DISABLE_XET", "https://huggingface.co"

STEP = 0.1  # Seconds between two looks at an upload


def limit_xet(retry_policy: RetryPolicy) -> None:
    """Set the time-outs and retries of hf_xet, as far as the user has not set its variables."""
    settings = {
        "CONNECT_TIMEOUT": f"{retry_policy.timeout * 1000:.0f}ms",
        "READ_TIMEOUT": f"{retry_policy.timeout * 1000:.0f}ms",
        "RETRY_MAX_ATTEMPTS": str(retry_policy.attempts - 1),
        "RETRY_BASE_DELAY": f"{retry_policy.first_wait * 1000:.0f}ms",
        "RETRY_MAX_DURATION": f"{retry_policy.longest_wait * 1000:.0f}ms",
    }
    for name, value in settings.items():
        os.environ.setdefault(f"HF_XET_CLIENT_{name}", value)


class WatchedSession:
    """A session of hf_xet with watched uploads."""

    def __init__(self, session: Any, retry_policy: RetryPolicy) -> None:
        self._session, self._retry_policy = session, retry_policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def new_upload_commit(self, *args: Any, **kwargs: Any) -> WatchedUpload:
        upload = interruptible(lambda: self._session.new_upload_commit(*args, **kwargs))  # it asks for a token
        return WatchedUpload(upload, self._retry_policy)


class WatchedUpload:
    """hf_xet's upload, ended if it makes no progress for as long as all attempts of one request may take."""

    def __init__(self, upload: Any, retry_policy: RetryPolicy) -> None:
        self._upload = upload
        self.longest = retry_policy.attempts * retry_policy.timeout + retry_policy.first_wait * 2 ** (
            retry_policy.attempts - 1
        )
        self._ended = threading.Event()
        self._stalled = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._upload, name)

    def __enter__(self) -> Any:
        threading.Thread(target=self._watch, daemon=True).start()
        return self._upload.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        try:
            return self._upload.__exit__(kind, error, trace)
        except RuntimeError:
            if not self._stalled:
                raise
            problem = f"the Hub's Xet storage took nothing for {self.longest:.0f} s while files were uploaded"
            raise HubUnreachableError(f"{problem}, so this was given up; nothing was committed") from None
        finally:
            self._ended.set()

    def _watch(self) -> None:
        moved, before = time.monotonic(), ""
        while not self._ended.wait(STEP):
            now = progress(self._upload)
            if now != before:
                moved, before = time.monotonic(), now
            elif time.monotonic() - moved > self.longest:
                self._stalled = True
                self._upload.abort()
                return


def progress(upload: Any) -> str:
    report = upload.progress()
    parts = (report, report.shard)
    names = [[name for name in dir(part) if name.endswith("completed")] for part in parts]
    return str([getattr(part, name) for part, some in zip(parts, names, strict=True) for name in some])


LONGEST_ANSWER = 64 << 20
"""Bytes of one answer, and of all answers to one question, such as the pages of a list: 200,000 files."""

LEAST = 16 << 10  # Bytes that an answer counts for however short it is, which limits the number of pages

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
    """The body of an answer, up to `longest` bytes."""

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
        self.body.close()


def limit_body(response: Any, file_size: int | None) -> None:
    """Limit how far an answer is read; other libraries' downloads by the same client are not limited."""
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


LINKED_ETAG, ETAG, COMMIT = "X-Linked-Etag", "ETag", "X-Repo-Commit"
LINKED_SIZE, SIZE = "X-Linked-Size", "Content-Length"

_EXPECTED: ContextVar[tuple[str, RepoFile] | None] = ContextVar("expected", default=None)


@contextmanager
def expecting(commit: str, entry: RepoFile) -> Iterator[None]:
    """Refuse a file of another name or size than the Hub has listed."""
    token = _EXPECTED.set((commit, entry))
    try:
        yield
    finally:
        _EXPECTED.reset(token)


class _Session:
    """Holds the client's requests to a retry policy.

    It has to be done request by request, since most ask for no time-out and the client waits as long as a Hub asks; and
    by the factory of sessions, since the client closes its session after some failures and makes another. The
    replaced factory, perhaps a user's with proxies and certificates, cannot be asked for: sessions are copies of the
    one that it made, with the proxies and certificates of that time.
    """

    def __init__(self) -> None:
        self.retry_policy = RetryPolicy()
        self._watches_xet = self._closed = False
        self._lock = threading.Lock()

    def install(self, retry_policy: RetryPolicy) -> None:
        """Hold the client to a retry policy from now on, also with a factory of sessions set since then."""
        with self._lock:
            self.retry_policy = retry_policy
            if not self._watches_xet:
                limit_xet(retry_policy)
                if not os.environ.get(SWITCH) and constants.ENDPOINT != HUB:  # other hosts are asked by plain HTTP
                    constants.HF_HUB_DISABLE_XET = True
                make = getattr(client, "get_xet_session", None)  # a private function; there is no public one
                if make is not None:  # the client has it since it hands sessions out
                    client.get_xet_session = lambda: WatchedSession(make(), self.retry_policy)
                self._watches_xet = True
            session = get_session()
            if self._limit not in session.event_hooks.get("request", ()):  # set it once: that closes the session in use
                made = copy.copy(session)  # which stays open when the client closes the other
                set_client_factory(lambda: self._bounded(copy.copy(made)))

    def _bounded(self, session: Any) -> Any:
        hooks = session.event_hooks
        session.event_hooks = {
            "request": [*hooks.get("request", ()), self._limit],
            "response": [*hooks.get("response", ()), self._check],
        }
        return session

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Let the client, and libraries that use it, know at once that the machine is offline."""
        self._closed = True
        try:
            yield
        finally:
            self._closed = False

    def _limit(self, request: Any) -> None:
        if self._closed:
            raise OfflineModeIsEnabled(f"{request.url.host} cannot be reached")
        asked = request.extensions.get("timeout") or {}
        limits = {
            phase: asked.get(phase) or self.retry_policy.timeout for phase in ("connect", "read", "write", "pool")
        }
        request.extensions = {**request.extensions, "timeout": limits}
        request.headers["Accept-Encoding"] = "identity"  # so that the bytes that are read can be counted

    def _check(self, response: Any) -> None:
        commit, entry = _EXPECTED.get() or (None, None)
        limit_body(response, entry.size if entry is not None else None)
        if asked_wait(response) > self.retry_policy.longest_wait:
            response.read()
            hf_raise_for_status(response)
        headers = response.headers
        etag = headers.get(LINKED_ETAG) or headers.get(ETAG)
        if entry is None or response.request.method != "HEAD" or etag is None or COMMIT not in headers:
            return
        answered = (headers[COMMIT], etag.removeprefix("W/").strip('"'))
        if answered != (commit, checksum_of(entry)):
            raise IntegrityError(
                f"the Hub calls a file {answered[1]!r} of commit {answered[0]!r} that it lists as "
                f"{checksum_of(entry)!r} of {commit!r}; nothing of it was downloaded"
            )
        size = headers.get(LINKED_SIZE) or (headers.get(SIZE) if response.status_code in OK else None)
        if size is not None and size != str(entry.size):
            problem = f"{entry.path} has {size} bytes by the Hub's answer and {entry.size} by its list"
            raise IntegrityError(f"{problem}; nothing of it was downloaded")


SESSION = _Session()
