"""The report on a terminal: colours where they are wanted.

The same language as the other commands have (`gpusetup/render/screen.py`), which this folder
cannot import: it stands alone. A pipe and a file get the text as it is.
"""

import os
import re
import sys
from typing import Mapping, Optional, TextIO

from ..values import Report
from .render import as_text

CODES = {"passed": "1;32", "failed": "1;31", "crashed": "1;31", "skipped": "2", "hint": "1;36"}
"""A word with which a line begins -> its colour, of the terminal's own sixteen."""


def as_screen(report: Report, verbose: bool, stream: Optional[TextIO]) -> str:
    """The text as this stream shows it; None: a file."""
    text = as_text(report, verbose)
    if stream is None or not wants_colour(os.environ, stream.isatty()):
        return text
    return "".join(map(painted, text.splitlines(keepends=True)))


def wants_colour(environ: Mapping[str, str], is_terminal: bool) -> bool:
    """NO_COLOR before all, then FORCE_COLOR, else what the terminal can.

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
    # A console of Windows obeys colours only once it was asked to; these do so always.
    return is_terminal and (sys.platform != "win32" or "WT_SESSION" in environ)


def painted(line: str) -> str:
    r"""A line whose status, verdict or hint is coloured.

    >>> painted("failed   matmul"), painted("other"), painted("verdict: passed")
    ('\x1b[1;31mfailed\x1b[0m   matmul', 'other', 'verdict: \x1b[1;32mpassed\x1b[0m')
    """
    words = re.match(r"((?:verdict: )?)(passed|failed|crashed|skipped|hint)\b", line)
    if words is None:
        return line
    start, word = words.groups()
    return f"{start}\x1b[{CODES[word]}m{word}\x1b[0m{line[words.end() :]}"
