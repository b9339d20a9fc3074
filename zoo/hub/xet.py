"""Holding the client for Xet storage, which has its own connections, to a patience, and to the Hub that is trusted.

huggingface_hub has no public way to give it a session of hf_xet, so a private function is replaced where it is there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from huggingface_hub import constants
from huggingface_hub.utils import _xet as client

from .errors import HubUnreachableError
from .interruptions import interruptible
from .retries import Patience

SWITCH, HUB = "HF_HUB_DISABLE_XET", "https://huggingface.co"

STEP = 0.1
"""Seconds between two looks at an upload."""


def limit_xet(patience: Patience) -> None:
    """Set the time-outs and retries of hf_xet, as far as the user has not set its variables."""
    settings = {
        "CONNECT_TIMEOUT": f"{patience.timeout * 1000:.0f}ms",
        "READ_TIMEOUT": f"{patience.timeout * 1000:.0f}ms",
        "RETRY_MAX_ATTEMPTS": str(patience.attempts - 1),
        "RETRY_BASE_DELAY": f"{patience.first_wait * 1000:.0f}ms",
        "RETRY_MAX_DURATION": f"{patience.longest_wait * 1000:.0f}ms",
    }
    for name, value in settings.items():
        os.environ.setdefault(f"HF_XET_CLIENT_{name}", value)


def leave_xet_to_the_hub() -> None:
    """Use plain HTTP at every endpoint but huggingface.co, unless HF_HUB_DISABLE_XET is set to 0."""
    if not os.environ.get(SWITCH) and constants.ENDPOINT != HUB:
        constants.HF_HUB_DISABLE_XET = True


def watch_uploads(patience: Callable[[], Patience]) -> None:
    """Context manager: end uploads of this process that make no progress, as those of commits."""
    make = getattr(client, "get_xet_session", None)
    if make is not None:  # which there is since the client hands sessions out
        client.get_xet_session = lambda: WatchedSession(make(), patience())


class WatchedSession:
    """A session of hf_xet with watched uploads."""

    def __init__(self, session: Any, patience: Patience) -> None:
        self._session, self._patience = session, patience

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def new_upload_commit(self, *args: Any, **kwargs: Any) -> WatchedUpload:
        """Begin an upload. Arguments as hf_xet's."""
        upload = interruptible(lambda: self._session.new_upload_commit(*args, **kwargs))  # it asks for a token
        return WatchedUpload(upload, self._patience)


class WatchedUpload:
    """An upload that is ended when it makes no progress in a `with`, and otherwise hf_xet's own.

    Args:
        patience: Progress has to be made in the time that all attempts of one request may take.
    """

    def __init__(self, upload: Any, patience: Patience) -> None:
        self._upload = upload
        self.longest = patience.attempts * patience.timeout + patience.first_wait * 2 ** (patience.attempts - 1)
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
            raise HubUnreachableError(
                f"the Hub's Xet storage took nothing for {self.longest:.0f} s while files were uploaded, so this was "
                "given up; nothing was committed"
            ) from None
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
    """How far an upload is."""
    report = upload.progress()
    parts = (report, report.shard)
    names = [[name for name in dir(part) if name.endswith("completed")] for part in parts]
    return str([getattr(part, name) for part, some in zip(parts, names, strict=True) for name in some])
