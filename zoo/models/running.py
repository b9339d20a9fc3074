"""Who else is at work: what is done to PyTorch in one thread is done to all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Running:
    """How many texts are being written, in all threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.number = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Write a text, which begins when nobody wants to be alone.

        Yields:
            Nothing.
        """
        with self.lock:
            self.number += 1
        try:
            yield
        finally:
            with self.lock:
                self.number -= 1

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Let no other text be begun meanwhile.

        Yields:
            Whether there is no other one.
        """
        with self.lock:
            yield self.number == 1
