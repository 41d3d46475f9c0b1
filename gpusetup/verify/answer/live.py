"""What is checked now, on a terminal: one line on stderr that is drawn again, and goes at the end.

A pipe, a file, a dumb terminal and the ranks of a job get nothing of it.
"""

from __future__ import annotations

import os
import sys
import threading
import time

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
        self.of = self.at = 0
        self.what = ""
        self.began = time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._ticks, daemon=True)

    def __enter__(self) -> "Live":
        if self.wanted:
            self.thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.over.set()
        if self.wanted:
            self.thread.join()

    def checks(self, name: str, device: str) -> None:
        """The next check begins."""
        self.at += 1
        self.what, self.began = f"{name} on {device}", time.monotonic()

    def _ticks(self) -> None:
        drawn, wait = "", FIRST_SECONDS
        colour = "\x1b[2m{}\x1b[0m\r" if wants_colour(os.environ, True) else "{}\r"
        while not self.over.wait(wait):
            drawn, wait = ERASED, EACH_SECONDS
            of = f" of {self.of}" if self.at <= self.of else ""
            text = f"check {self.at}{of}: {self.what}, {time.monotonic() - self.began:.0f} s"
            # The cursor stays in front of the line: what a library says begins there.
            sys.stderr.write(ERASED + colour.format(text))
            sys.stderr.flush()
        sys.stderr.write(drawn)
        sys.stderr.flush()
