"""Ctrl-C: distinguished from a KeyboardInterrupt that code raises, and heard while compiled code waits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def interrupts_counted() -> Iterator[list[int]]:
    """Note every Ctrl-C of a block, which still raises KeyboardInterrupt, unless the user's program handles them."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        signal.default_int_handler(number, frame)

    ours = threading.current_thread() is threading.main_thread()
    if not (ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield heard
        return
    signal.signal(signal.SIGINT, hear)
    try:
        yield heard
    finally:
        if signal.getsignal(signal.SIGINT) is hear:  # and not another one that the block has installed
            signal.signal(signal.SIGINT, signal.default_int_handler)


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
