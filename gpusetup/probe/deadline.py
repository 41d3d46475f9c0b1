"""Waits for the driver: runs calls in background threads with a common deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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


class Deadline:
    """A common deadline for several calls. `notify` is called once, if one of them is slow."""

    def __init__(self, limit: float = LIMIT_SECONDS, notify: Notify | None = None) -> None:
        self.limit = limit
        self._until = time.monotonic() + limit
        self._notify = notify
        self._pending: list[str] = []

    def left(self) -> float:
        """The remaining seconds; 0 if the deadline has passed."""
        return max(0.0, self._until - time.monotonic())

    @contextmanager
    def waiting_for(self, source: str) -> Iterator[None]:
        """Call `notify` if the `with` block takes longer than NOTICE_SECONDS to read this
        source."""
        self._pending.append(source)
        timer = Timer(NOTICE_SECONDS, self._notify_once)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._pending.remove(source)

    def _notify_once(self) -> None:
        # Several calls may be slow; one notice is enough.
        notify, self._notify = self._notify, None
        if notify is not None:
            notify(NOTICE.format(sources=" and ".join(self._pending), limit=self.limit))
