"""What takes longer than a second says so on a terminal: one line, drawn again with its seconds.

A pipe, a file, a dumb terminal and Windows get nothing of it: there our children share our console
and may ask for a password on it. Elsewhere a child has no terminal (`system/processes.py`), and
whoever lends it one, or reads from it, ends the clock first.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size

from gpusetup.render.screen import can_be_drawn_on

FIRST_SECONDS = 1.0
"""What is done sooner is not spoken of."""
EACH_SECONDS = 0.5
ERASED = "\r\x1b[2K"


class Clock:
    """The one line that is drawn again; whoever writes another line ends it first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._drawn = False
        self.name = ""

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Whatever is not spoken of by its own words has this name."""
        self.name = name if can_be_drawn_on(sys.stderr) and sys.platform != "win32" else ""
        self.begin("")
        try:
            yield
        finally:
            self.name = ""
            self.end()

    def begin(self, what: str) -> None:
        """From the second second on, `what` and how long it has taken stand on the terminal."""
        self.end()
        self.reached(0, 0)
        if self.name:
            over = self._over = threading.Event()
            ticks = (what or self.name, over)
            threading.Thread(target=self._ticks, args=ticks, daemon=True).start()

    def reached(self, done: int, of: int, unit: str = "", since: float | None = None) -> None:
        """How many are done, of how many; `since` when, where lines were written in between."""
        self.counted(lambda: done, of, unit, since)

    def counted(
        self, done: Callable[[], int], of: int, unit: str = "", since: float | None = None
    ) -> None:
        """The same, where `done` is asked each time that the line is drawn."""
        self._far = done, of, unit, since

    def end(self) -> None:
        """The line goes, and what is written next begins where it stood."""
        self._over.set()
        with self._lock:
            if self._drawn:
                self._draw("")

    def _draw(self, text: str) -> None:
        self._drawn = bool(text)
        with suppress(OSError, ValueError):  # the terminal has gone
            sys.stderr.write(f"{ERASED}{text}")
            sys.stderr.flush()

    def _ticks(self, what: str, over: threading.Event) -> None:
        began, wait = time.monotonic(), FIRST_SECONDS
        while not over.wait(wait):
            wait = EACH_SECONDS
            count, of, unit, since = self._far
            done = min(count(), of)
            beside = said(time.monotonic() - (since or began), done, of, unit)
            room = max(get_terminal_size().columns - len(beside) - 1, 0)
            with self._lock:
                if not over.is_set():
                    self._draw(what[:room] + beside)


def said(seconds: float, done: int, of: int, unit: str = "") -> str:
    """How far it is.

    >>> said(4.2, 0, 0), said(4.2, 300, 1500), said(75, 1500, 1500, "MB")
    (' 4 s', ' 300 of 1500, 17 s left', ' 1500 of 1500 MB, 75 s')
    """
    if not done or not of:
        return f" {seconds:.0f} s"
    left = seconds / done * (of - done)
    ends = f"{left:.0f} s left" if done < of else f"{seconds:.0f} s"
    return f" {done} of {of}{f' {unit}' if unit else ''}, {ends}"


CLOCK = Clock()
