"""What can go wrong with an answer, on demand."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

KINDS = ("lost", "500", "429", "disconnect", "reset", "truncated", "flipped", "stall")
"""lost: done, but no answer. 500, 429: refused. disconnect: closed unread. reset: TCP reset in the middle of the body.
truncated: closed in the middle of the body. flipped: one byte differs. stall: nothing happens for a long time."""

AFTERWARDS = frozenset({"lost", "reset", "truncated", "flipped"})
"""Faults of the answer: the request itself has been carried out."""


@dataclass
class Fault:
    """A fault at certain requests.

    Args:
        kind: One of `KINDS`.
        at: The number of the request at which it happens, counted from 1 since the fault was set; 0 for every one.
        where: What "METHOD /path" must match to be counted.
        times: How often it happens.
    """

    kind: str
    at: int = 0
    where: str = ""
    times: int = 1_000_000
    seen: int = 0
    happened: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def applies(self, request: str) -> bool:
        if self.where and not re.search(self.where, request):
            return False
        self.seen += 1
        if (self.at and self.seen != self.at) or self.happened >= self.times:
            return False
        self.happened += 1
        return True
