"""Ctrl-C in a push: end it at any point, and report what was pushed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from zoo.base.interrupts import interrupts_counted

T = TypeVar("T")


@contextmanager
def interrupts_heard() -> Iterator[list[str]]:
    """End a block by a KeyboardInterrupt that reports what was done, also where other code swallows the first one."""
    done: list[str] = []
    with interrupts_counted() as heard:
        try:
            yield done
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            if not (interrupted or heard):
                raise
            message = "; ".join(filter(None, (*done, str(error) if interrupted else "")))
            raise KeyboardInterrupt(message or "nothing was pushed") from None
    if heard:
        raise KeyboardInterrupt("; ".join(done) or "nothing was pushed")


def interruptible(call: Callable[[], T], timeout: float | None = None) -> T:
    """Call something in a thread, so that Ctrl-C is heard while compiled code waits."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer.result(timeout)
