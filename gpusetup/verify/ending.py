"""How a run is ended from outside."""

from __future__ import annotations

import contextlib
import signal
from typing import Any, Iterator, List

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
"""They ask for the end; a Ctrl-C is the first."""


class Ended(BaseException):
    """A signal asked the program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def hearing(handler: Any) -> Iterator[None]:
    """Meanwhile the signals that ask for the end are handled so; `nohup` stays in force."""
    before = {}
    for number in (getattr(signal, name, None) for name in SIGNALS):
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            with contextlib.suppress(ValueError, OSError):  # not the main thread
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def hearing_the_end() -> Any:
    """A signal ends the run with what is known; also as the first process of a container, which
    the kernel ends by no signal that it has not asked for. The first one counts: those who end a
    whole group of processes send it again while the report is written."""
    came: List[int] = []

    def end(number: int, _: Any) -> None:
        came.append(number)
        if len(came) == 1:
            raise Ended(number)

    return hearing(end)
