"""What takes longer than a second says so on a terminal: one line, drawn again with its seconds.

A pipe, a file and a dumb terminal get nothing of it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from gpusetup.render.language import DIM, cells, painted
from gpusetup.render.terminal import columns_of, is_dumb, obeys_codes, terminal_of

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
        self.name = ""
        self.done = self.of = 0

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
        self.done = self.of = 0
        over = self._over = threading.Event()
        ticks = (what or self.name, sys.stderr, over)
        threading.Thread(target=self._ticks, args=ticks, daemon=True).start()

    def reached(self, done: int, of: int) -> None:
        """How many are done, of how many."""
        self.done, self.of = done, of

    def end(self) -> None:
        """The line goes, and what is written next begins where it stood."""
        with self._lock:
            if self._over is not None:
                self._over.set()
                self._over = None
            if self._drawn is not None:
                _write(self._drawn, ERASED)
                self._drawn = None

    def _ticks(self, what: str, stream: TextIO, over: threading.Event) -> None:
        began, wait = time.monotonic(), FIRST_SECONDS
        colour = terminal_of(stream).colour
        while not over.wait(wait):
            wait = EACH_SECONDS
            with self._lock:
                if over.is_set():
                    return
                beside = said(time.monotonic() - began, self.done, self.of)
                room = max(columns_of(stream) - cells(beside) - 1, 0)
                dim = painted(beside, DIM if colour else "")
                self._drawn = stream
                _write(stream, f"{ERASED}{what[:room]}{dim}")


def is_live(stream: TextIO) -> bool:
    """Whether a line can be drawn again there."""
    terminal = terminal_of(stream)
    return terminal.is_terminal and not is_dumb(os.environ) and obeys_codes(stream)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # the terminal has gone
        return


def said(seconds: float, done: int, of: int) -> str:
    """How far it is.

    >>> said(4.2, 0, 0), said(4.2, 300, 1500), said(75, 1500, 1500)
    (' 4 s', ' 300 of 1500, 17 s left', ' 1500 of 1500, 75 s')
    """
    if not done or not of:
        return f" {seconds:.0f} s"
    left = seconds / done * (of - done)
    ends = f"{left:.0f} s left" if done < of else f"{seconds:.0f} s"
    return f" {done} of {of}, {ends}"


CLOCK = Clock()
