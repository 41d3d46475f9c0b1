"""What is checked now, on a terminal: one line on stderr that is drawn again, and goes at the end.

A pipe, a file, a dumb terminal and the ranks of a job get nothing of it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Optional

from .screen import wants_colour

FIRST_SECONDS = 1.0
"""What is done sooner is not spoken of."""
EACH_SECONDS = 0.5
ERASED = "\r\x1b[2K"


class Live:
    """The line: which check of how many, on what, since when."""

    def __init__(self, wanted: bool = True) -> None:
        dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
        self.wanted = wanted and sys.stderr.isatty() and not dumb and sys.platform != "win32"
        self.of = 0
        self._at = 0
        self._what = ""
        self._first = self._began = time.monotonic()
        self._over: Optional[threading.Event] = None
        self._lock = threading.Lock()
        self._drawn = False

    def checks(self, name: str, device: str) -> None:
        """The next check begins."""
        self._at += 1
        self._what, self._began = "{} on {}".format(name, device), time.monotonic()
        if self.wanted and self._over is None:
            self._over = threading.Event()
            threading.Thread(target=self._ticks, args=(self._over,), daemon=True).start()

    def end(self) -> None:
        with self._lock:
            if self._over is not None:
                self._over.set()
                self._over = None
            if self._drawn:
                sys.stderr.write(ERASED)
                sys.stderr.flush()
                self._drawn = False

    def _ticks(self, over: threading.Event) -> None:
        wait = FIRST_SECONDS
        while not over.wait(wait):
            wait = EACH_SECONDS
            with self._lock:
                if not over.is_set():
                    self._drawn = True
                    sys.stderr.write(ERASED + self._line())
                    sys.stderr.flush()

    def _line(self) -> str:
        # The cursor stays in front of the line: what a library says begins there.
        seconds = time.monotonic() - self._began
        text = said(self._at, self.of, self._what, seconds, self._began - self._first)
        return ("\x1b[2m{}\x1b[0m\r" if wants_colour(os.environ, True) else "{}\r").format(text)


TOLD_FROM = 4
"""From this check on what is left is told: the first ones load torch and are no measure."""


def said(at: int, of: int, what: str, seconds: float, before: float = 0.0) -> str:
    """`before`: what the checks before this one took together.

    >>> said(3, 9, "amp on cuda:0", 12.3), said(1, 0, "import on host", 1.0)
    ('check 3 of 9: amp on cuda:0, 12 s', 'check 1: import on host, 1 s')
    >>> said(5, 9, "float32 on cpu", 2, before=8)
    'check 5 of 9: float32 on cpu, 2 s; about 8 s left'
    """
    number = "check {} of {}".format(at, of) if at <= of else "check {}".format(at)
    left = before / (at - 1) * (of - at + 1) - seconds if TOLD_FROM <= at <= of else 0
    end = "; about {:.0f} s left".format(left) if left >= 1 else ""
    return "{}: {}, {:.0f} s{}".format(number, what, seconds, end)
