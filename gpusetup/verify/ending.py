"""How a run is ended from outside."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Iterator, List, Optional

_came: Optional[List[int]] = None
"""The signals that came while something had to be done first; None while nothing has."""


class Ended(BaseException):
    """A signal asked the program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def listen_for_the_end() -> None:
    """SIGTERM and SIGHUP end the run with what is known; also as the first process of a container,
    which the kernel ends by no signal that it has not asked for. The first one counts: those who
    end a whole group of processes send it again while the report is written."""

    def end(number: int, _: Any) -> None:
        if _came is None:
            heard(signal.SIG_IGN)
            raise Ended(number)
        _came.append(number)

    heard(end)


def heard(handler: Any) -> None:
    """The signals that ask for the end are handled so."""
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            with contextlib.suppress(ValueError, OSError):  # not the main thread
                signal.signal(getattr(signal, name), handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """A signal that asks for the end is heard when this is done: a process that is being started is
    nobody's yet, and nobody would end it."""
    global _came
    if threading.current_thread() is not threading.main_thread() or _came is not None:
        yield  # the main thread alone hears signals
        return
    came = _came = []
    try:
        yield
    finally:
        _came = None
        if came:
            raise Ended(came[0])
