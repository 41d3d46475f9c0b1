"""How a run is ended from outside."""

from __future__ import annotations

import contextlib
import signal
from typing import Any


class Ended(BaseException):
    """A signal asked the program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def listen_for_the_end() -> None:
    """SIGTERM and SIGHUP end the run with what is known; also as the first process of a container,
    which the kernel ends by no signal that it has not asked for."""

    def end(number: int, _: Any) -> None:
        raise Ended(number)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            with contextlib.suppress(ValueError, OSError):  # not the main thread
                signal.signal(getattr(signal, name), end)
