"""Writes the report to the terminal or a file, and shows which check is running."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Optional

from ..streams import Unwritten, write_stderr, write_stdout
from ..values import ReportBlocked, Stop
from .render import as_error, harmless

DUMB = ("dumb", "unknown")
"""Values of TERM for terminals that cannot erase a line."""


class Live:
    """The line on a terminal that says which check is running. It is erased after the last one."""

    def __init__(self, is_shown: bool = True) -> None:
        # Some consoles of Windows print the sequence of `_draw` instead of erasing the line.
        can_erase = os.environ.get("TERM", "").lower() not in DUMB and sys.platform != "win32"
        self.is_shown = is_shown and can_erase and sys.stderr.isatty()
        self.check_count = 0
        self.check_number = 0

    def begin_check(self, name: str, device: str) -> None:
        """Say that the next check begins."""
        self.check_number += 1
        # The count is 0 until the devices are known, and leaves out the checks among ranks.
        total = f" of {self.check_count}" if self.check_number <= self.check_count else ""
        self._draw(f"check {self.check_number}{total}: {name} on {device}")

    def _draw(self, text: str) -> None:
        if self.is_shown:
            # `ESC [2K` erases the line. At its start, the cursor lets a message overwrite it.
            write_stderr(f"\r\x1b[2K{text}\r")

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *problem: object) -> None:
        self._draw("")


def write(text: str, path: Optional[str], mode: str = "w") -> None:
    """Write the text to the file, or to stdout if `path` is None. Raises ReportBlocked."""
    if path is None:
        write_stdout(text)
        return
    try:
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise ReportBlocked(f"Cannot write {path}: {reason}", "name another file") from problem


def complain(stop: Stop, as_document: bool) -> int:
    """Print the error that ended the program, as JSON if `as_document`. Returns its exit code."""
    if as_document:
        # If the document cannot be written to stdout, the message goes to stderr.
        with contextlib.suppress(BrokenPipeError, Unwritten):
            write_stdout(as_error(stop))
            return stop.exit_code
    write_stderr(harmless(f"error: {stop.message}") + "\n")
    write_stderr("\n" + harmless(f"hint: {stop.hint}") + "\n" if stop.hint else "")
    return stop.exit_code
