"""Waits for the driver: runs calls in background threads, and says what is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread, Timer
from typing import Any, TypeVar

T = TypeVar("T")
Notify = Callable[[str], None]
LIMIT_SECONDS = 30.0
"""The default time limit in seconds for the driver. A node with many GPUs and without persistence
mode may take this long."""
NOTICE_SECONDS = 3.0
"""After this many seconds, the user is told what the program waits for."""


def in_background(call: Callable[..., T], *arguments: Any) -> Future[T]:
    """Start a call on a daemon thread, which does not keep a process alive if the driver hangs."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call(*arguments))
        except BaseException as problem:
            # `result` raises it in the thread that waits for the call.
            future.set_exception(problem)

    Thread(target=run, daemon=True).start()
    return future


@contextmanager
def announced(
    pending: Callable[[], Sequence[str]], limit: float, notify: Notify | None
) -> Iterator[None]:
    """Call `notify` once if the `with` block takes longer than NOTICE_SECONDS.

    `pending` returns the names of the sources that have not answered by then; they may take
    `limit` seconds.
    """

    def tell() -> None:
        names = pending()
        if notify is not None and names:
            notify(f"waiting for {' and '.join(names)}: up to {limit:g} s")

    notice = Timer(NOTICE_SECONDS, tell)
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()
