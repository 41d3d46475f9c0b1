"""Handles signals that end a run from outside."""

from __future__ import annotations

import contextlib
import signal
from typing import Any, Iterator, List

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
"""The signals that ask a program to end; Ctrl-C sends the first one."""


class Ended(BaseException):
    """Raised when a signal asks the program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside the `with` block, the first signal of SIGNALS raises Ended. Launchers repeat theirs
    while the report is being written, so later ones are ignored."""
    received: List[int] = []
    handlers_before = {}

    def end(number: int, _: Any) -> None:
        received.append(number)
        if len(received) == 1:
            raise Ended(number)

    for name in SIGNALS:
        # Windows has no SIGHUP.
        number = getattr(signal, name, None)
        # A signal that is already ignored stays so: `nohup` sets SIGHUP to that.
        if number is None or signal.getsignal(number) == signal.SIG_IGN:
            continue
        # Python lets only the main thread set handlers.
        with contextlib.suppress(ValueError):
            handlers_before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler_before in handlers_before.items():
            signal.signal(number, handler_before)
