"""Shows the report on a terminal or writes it to a file, and shows which check is running.

The screen looks like that of the other commands (`gpusetup/render/screen.py`), which this folder
cannot import because it must also work without gpusetup. Pipes and files get plain text.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import textwrap
from typing import List, Mapping, Optional, TextIO

from ..streams import Unwritten, put, say
from ..values import Report, ReportBlocked, Stop
from .render import as_error, as_text, harmless

CODES = {"passed": "1;32", "failed": "1;31", "crashed": "1;31", "skipped": "2", "hint": "1;36"}
"""The first word of a line -> its color, one of the terminal's sixteen."""


def as_screen(report: Report, verbose: bool, stream: Optional[TextIO]) -> str:
    """The report as text, colored if the stream (None for a file) shows colors."""
    text = as_text(report, verbose)
    if stream is not None and stream.isatty():
        text = wrapped(text, shutil.get_terminal_size().columns)
    if stream is None or not wants_colour(os.environ, stream.isatty()):
        return text
    lines = text.splitlines(keepends=True)
    return "".join(painted(line) for line in lines)


def wrapped(text: str, width: int) -> str:
    """The text, with sentences that are wider than the terminal broken between words.

    The lines of checks are not broken, so that their columns line up.

    >>> print(wrapped("hint: one two three", 12))
    hint: one
      two three
    """
    lines: List[str] = []
    for line in text.split("\n"):
        if len(line) <= width or line.startswith(STATUSES):
            lines.append(line)
        else:
            lines += textwrap.wrap(
                line,
                width,
                subsequent_indent="  ",
                # Do not break a command or a path, so that it can be copied.
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines)


STATUSES = ("passed ", "failed ", "crashed ", "skipped ")
"""The words with which a check's line begins."""


def wants_colour(environ: Mapping[str, str], is_terminal: bool) -> bool:
    """Whether to use colors: NO_COLOR decides first, then FORCE_COLOR, then what the terminal
    supports.

    >>> wants_colour({"TERM": "xterm"}, True), wants_colour({"TERM": "dumb"}, True)
    (True, False)
    >>> wants_colour({"FORCE_COLOR": "1"}, False), wants_colour({"NO_COLOR": "1"}, True)
    (True, False)
    """
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    if environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return False
    # A Windows console shows colors only after a program has switched them on. The terminals below
    # always show them.
    return is_terminal and (sys.platform != "win32" or "WT_SESSION" in environ)


def painted(line: str) -> str:
    r"""The line with its status, verdict or hint in color.

    >>> painted("failed   matmul"), painted("other"), painted("verdict: passed")
    ('\x1b[1;31mfailed\x1b[0m   matmul', 'other', 'verdict: \x1b[1;32mpassed\x1b[0m')
    """
    # Color only the first word: in the middle of a line, the same word is part of a sentence.
    pattern = r"((?:verdict: )?)(passed|failed|crashed|skipped|hint)\b"
    return re.sub(rf"\A{pattern}", lambda m: f"{m[1]}\x1b[{CODES[m[2]]}m{m[2]}\x1b[0m", line)


class Live:
    """The line on a terminal that says which check is running. It is erased after the last one."""

    def __init__(self, is_shown: bool = True) -> None:
        is_dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
        can_erase = sys.stderr.isatty() and not is_dumb and sys.platform != "win32"
        self.is_shown = is_shown and can_erase
        self.check_count = 0
        self.check_number = 0

    def checks(self, name: str, device: str, most_seconds: float) -> None:
        """Say that the next check begins, and how long it may take at most."""
        self.check_number += 1
        # The number of checks is known once the devices are known.
        total = f" of {self.check_count}" if self.check_number <= self.check_count else ""
        text = f"check {self.check_number}{total}: {name} on {device}"
        if most_seconds < float("inf"):
            text += f", at most {most_seconds:.0f} s"
        self._draw(f"\x1b[2m{text}\x1b[0m" if wants_colour(os.environ, True) else text)

    def _draw(self, text: str) -> None:
        if self.is_shown:
            # The cursor stays in front of the line, so that a library's message overwrites it.
            say(f"\r\x1b[2K{text}\r" if text else "\r\x1b[2K")

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *problem: object) -> None:
        self._draw("")


def write(text: str, path: Optional[str], mode: str = "w") -> None:
    """Write the text to the file, or to stdout if `path` is None. Raises ReportBlocked."""
    if path is None:
        put(text)
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
        # If the document cannot be written to stdout, write the message to stderr.
        with contextlib.suppress(BrokenPipeError, Unwritten):
            put(as_error(stop))
            return stop.exit_code
    say(harmless(f"error: {stop.message}") + "\n")
    say("\n" + harmless(f"hint: {stop.hint}") + "\n" if stop.hint else "")
    return stop.exit_code
