"""Waits for the driver: runs calls in background threads, and says what is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread, Timer
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Notify = Callable[[str], None]
LIMIT_SECONDS = 30.0
"""The default time limit in seconds for the driver. A node with many GPUs and without persistence
mode may take this long."""
NOTICE_SECONDS = 3.0
"""After this many seconds, the user is told what the program waits for."""
NOTICE = "waiting for {sources}: up to {limit:g} s"


class BackgroundCall(Generic[T]):
    """A call on a separate thread; `result()` waits for it, then returns its result or raises its
    error."""

    def __init__(self, call: Callable[..., T], *arguments: Any) -> None:
        self._answer: list[T] = []
        self._problem: list[BaseException] = []
        self._thread = Thread(target=self._run, args=(call, *arguments), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[..., T], *arguments: Any) -> None:
        try:
            self._answer.append(call(*arguments))
        except BaseException as problem:
            # Keep the error, so that `result` can raise it in the thread that waits for the call.
            self._problem.append(problem)

    def ended_within(self, seconds: float) -> bool:
        """Whether the call ends within this many seconds."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def result(self) -> T:
        """Wait for the end of the call, then return its result or raise its error."""
        self._thread.join()
        for problem in self._problem:
            raise problem
        return self._answer[0]


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
            notify(NOTICE.format(sources=" and ".join(names), limit=limit))

    notice = Timer(NOTICE_SECONDS, tell)
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()
