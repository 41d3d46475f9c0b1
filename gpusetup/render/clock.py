"""What takes longer than a second says so on a terminal: one line, drawn again with its seconds.

A pipe, a file, a dumb terminal and Windows get nothing of it: there our children share our console
and may ask for a password on it. Elsewhere a child has no terminal (`system/processes.py`), and
whoever lends it one, or reads from it, does so while the clock is `still`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from gpusetup.render.terminal import can_be_drawn_on, columns_of

FIRST_SECONDS = 1.0
"""What is done sooner is not spoken of."""
EACH_SECONDS = 0.5
ERASED = "\r\x1b[2K"


class Clock:
    """The one line that is drawn again; whoever writes another line ends it first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over: threading.Event | None = None
        self._drawn: TextIO | None = None
        self._still = 0
        self.name = ""
        self.done = self.of = 0
        self.unit = ""
        self.since: float | None = None
        self.fetched: Callable[[], int] | None = None
        """How many bytes have come, asked each time that the line is drawn; `of` are expected."""

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Whatever is not spoken of by its own words has this name."""
        self.name = name if is_live(sys.stderr) else ""
        self.begin("")
        try:
            yield
        finally:
            self.name = ""
            self.end()

    def begin(self, what: str) -> None:
        """From the second second on, `what` and how long it has taken stand on the terminal."""
        self.end()
        if not self.name:
            return
        self.done, self.of, self.unit, self.since, self.fetched = 0, 0, "", None, None
        over = self._over = threading.Event()
        ticks = (what or self.name, sys.stderr, over)
        threading.Thread(target=self._ticks, args=ticks, daemon=True).start()

    def reached(self, done: int, of: int, unit: str = "", since: float | None = None) -> None:
        """How many are done, of how many; `since` when, where lines were written in between."""
        self.done, self.of, self.unit, self.since = done, of, unit, since

    def in_megabytes(self, done: int, of: int) -> None:
        """How many bytes are done, of how many."""
        self.reached(round(done / 1e6), round(of / 1e6), "MB")

    def end(self) -> None:
        """The line goes, and what is written next begins where it stood."""
        with self._lock:
            if self._over is not None:
                self._over.set()
                self._over = None
            self._erase()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is drawn while somebody else writes or types on the terminal."""
        with self._lock:
            self._still += 1
            self._erase()
        try:
            yield
        finally:
            with self._lock:
                self._still -= 1

    def _erase(self) -> None:
        if self._drawn is not None:
            _write(self._drawn, ERASED)
            self._drawn = None

    def _ticks(self, what: str, stream: TextIO, over: threading.Event) -> None:
        began, wait = time.monotonic(), FIRST_SECONDS
        while not over.wait(wait):
            wait = EACH_SECONDS
            if self.fetched is not None:
                self.done = min(self.of, round(self.fetched() / 1e6))
            with self._lock:
                if over.is_set():
                    return
                if self._still:
                    continue
                beside = said(
                    time.monotonic() - (self.since or began), self.done, self.of, self.unit
                )
                room = max(columns_of(stream) - len(beside) - 1, 0)
                self._drawn = stream
                _write(stream, f"{ERASED}{what[:room]}{beside}")


def is_live(stream: TextIO) -> bool:
    """Whether a line can be drawn again there."""
    return can_be_drawn_on(stream) and sys.platform != "win32"


def _write(stream: TextIO, text: str) -> None:
    with suppress(OSError, ValueError):  # the terminal has gone
        stream.write(text)
        stream.flush()


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
