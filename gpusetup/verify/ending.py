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
    handlers_before = {}
    for name in SIGNALS:
        # Windows has no SIGHUP.
        number = getattr(signal, name, None)
        # `nohup` ignores a signal, and so do all that it starts.
        if number is None or signal.getsignal(number) == signal.SIG_IGN:
            continue
        # Only the main thread may set handlers.
        with contextlib.suppress(ValueError, OSError):
            handlers_before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler_before in handlers_before.items():
            signal.signal(number, handler_before)


def hearing_the_end() -> Any:
    """A signal ends the run with what is known; also as the first process of a container, which
    the kernel ends by no signal that it has not asked for. The first one counts: those who end a
    whole group of processes send it again while the report is written."""
    signals: List[int] = []

    def end(number: int, _: Any) -> None:
        signals.append(number)
        if len(signals) == 1:
            raise Ended(number)

    return hearing(end)
