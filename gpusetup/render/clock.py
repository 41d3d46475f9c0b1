"""A line on the terminal that shows the progress and the seconds of a slow step, and is redrawn in
place.

A pipe, a file, a dumb terminal and Windows get no such line. On Windows, child processes share our
console and may ask for a password there. On other systems, a child has no terminal
(`system/processes.py`), and code that gives it the terminal, or reads from it, ends the clock
first.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size

from gpusetup.render.screen import can_be_drawn_on

FIRST_SECONDS = 1.0
"""A step that takes less time than this is not shown."""
REDRAW_SECONDS = 0.5
ERASED = "\r\x1b[2K"
"""Terminal codes that move to the first column and erase the line."""


class Clock:
    """The redrawn line on stderr. Call `end` before writing another line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._drawn = False
        self._name = ""

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Show the clock during this block; `name` is the label of steps that have none. Does
        nothing if stderr is not a suitable terminal."""
        can_be_shown = can_be_drawn_on(sys.stderr) and sys.platform != "win32"
        self._name = name if can_be_shown else ""
        self.begin("")
        try:
            yield
        finally:
            self._name = ""
            self.end()

    def begin(self, step: str) -> None:
        """Start timing a new step. The line appears once the step has taken a second."""
        self.end()
        self._progress = ""
        # Without a name, there is no suitable terminal or the clock is not in use.
        if self._name:
            self._over = threading.Event()
            words = (step or self._name, self._over)
            threading.Thread(target=self._ticks, args=words, daemon=True).start()

    def reached(self, done: int, total: int, unit: str = "") -> None:
        """Set the progress of the current step: `done` of `total` units."""
        # The total may be an estimate.
        self._progress = f" {min(done, total)} of {total} {unit}".rstrip() + ","

    def end(self) -> None:
        """Stop the clock and erase its line, so that the next output starts there."""
        self._over.set()
        with self._lock:
            if self._drawn:
                self._draw("")

    def _draw(self, text: str) -> None:
        self._drawn = bool(text)
        # If the terminal was closed, the work should still continue.
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{ERASED}{text}")
            sys.stderr.flush()

    def _ticks(self, label: str, over: threading.Event) -> None:
        """Draw the line after one second and then twice a second, until the step is over; runs in a
        separate thread."""
        began = time.monotonic()
        wait_seconds = FIRST_SECONDS
        while not over.wait(wait_seconds):
            wait_seconds = REDRAW_SECONDS
            progress = f"{self._progress} {time.monotonic() - began:.0f} s"
            # Shorten the label, because a row that reaches the last column would wrap and could not
            # be erased.
            columns_for_label = max(get_terminal_size().columns - len(progress) - 1, 0)
            with self._lock:
                # Check again, because the step may have ended while the text was built.
                if not over.is_set():
                    self._draw(label[:columns_for_label] + progress)


CLOCK = Clock()
