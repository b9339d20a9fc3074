"""What can go wrong with an answer, on demand."""

import re
import threading
from dataclasses import dataclass, field

KINDS = ("lost", "500", "429", "hour", "403", "disconnect", "reset", "truncated", "flipped", "stall")
"""lost: done, but no answer. 500, 429, hour, 403: refused, the middle two with the wish to come back after a second and
after an hour. disconnect: closed unread. reset: TCP reset in the middle of the body. truncated: closed in the middle of
the body. flipped: one byte differs. stall: nothing happens for a long time."""

ETAG = "etag"  # A file is called by another name than its own: by the fault's `value`

ECHO, MISSING = "echo", "missing"  # Refusals: one with the fault's `value`, and one of a revision that is there

ENDLESS, BOMB = "endless", "bomb"
"""Answers without an end, and answers of a few kilobytes that are gigabytes once they are unpacked."""

SAME_PAGE, SIZE = "same page", "size"
"""A list that goes on with the same page; a file of another size than its own: the fault's `value`."""

HELD = "held"  # Done, and the answer is held back for a long time

AFTERWARDS = frozenset({"lost", "reset", "truncated", "flipped", ETAG, ENDLESS, BOMB, SAME_PAGE, SIZE, HELD})
"""Faults of the answer: the request itself has been carried out."""

REFUSALS = {"500": 500, "429": 429, "hour": 429, "403": 403, ECHO: 403, MISSING: 404}
"""With which status a request is refused."""

WAITS = {"429": "1", "hour": "3600"}  # Seconds after which a refused client is asked to come back


@dataclass
class Fault:
    """A fault at certain requests."""

    kind: str  # One of `KINDS`, or `ETAG`, `ECHO`, `MISSING`, `ENDLESS`, `BOMB`, `SAME_PAGE`, `SIZE`, `HELD`
    at: int = 0  # The number of the request at which it happens, counted from 1 since it was set; 0 for every one
    since: int = 0  # From which request on everything is met, counted likewise; 0 for nothing
    where: str = ""  # What "METHOD /path" must match to be counted
    times: int = 1_000_000  # How often it happens
    value: str = ""  # The wrong name of a file, or the message
    seen: int = 0
    happened: int = 0
    sent: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def applies(self, request: str) -> bool:
        if self.where and not re.search(self.where, request):
            return False
        self.seen += 1
        if (self.at and self.seen != self.at) or self.seen < self.since or self.happened >= self.times:
            return False
        self.happened += 1
        return True
