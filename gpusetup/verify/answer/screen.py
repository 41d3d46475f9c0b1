"""The report on a terminal: colours where they are wanted, long lines broken in their own column.

The same language as the other commands have (`gpusetup/render/language.py`), which this folder
cannot import: it stands alone. A pipe and a file get the text as it is.
"""

import os
import re
import sys
from shutil import get_terminal_size
from typing import Iterator, Mapping, TextIO, Tuple

from ..values import Report
from .render import as_lines

CODES = {"passed": "1;32", "failed": "1;31", "crashed": "1;31", "skipped": "2", "hint": "1;36"}
"""A word with which a line begins -> its colour, of the terminal's own sixteen."""
STRONG = "1"
NO = ("", "0")
WIDEST = 120
NARROWEST = 24
BEGINS = re.compile(r"(?:(verdict): )?(passed|failed|crashed|skipped|hint)\b")


def as_screen(report: Report, verbose: bool, stream: TextIO) -> str:
    """The text as this stream shows it."""
    lines = as_lines(report, verbose)
    is_terminal = stream.isatty()
    if is_terminal:
        columns = max(min(get_terminal_size().columns, WIDEST), NARROWEST)
        lines = [row for line, hang in lines for row in broken(line, hang, columns)]
    else:
        lines = [(line, True) for line, _ in lines]
    colour = wants_colour(os.environ, is_terminal)
    return "".join(f"{painted(line) if colour and first else line}\n" for line, first in lines)


def wants_colour(environ: Mapping[str, str], is_terminal: bool) -> bool:
    """NO_COLOR before all, then FORCE_COLOR and CLICOLOR_FORCE, else what the terminal can.

    >>> wants_colour({"TERM": "xterm"}, True), wants_colour({"TERM": "dumb"}, True)
    (True, False)
    >>> wants_colour({"FORCE_COLOR": "1"}, False), wants_colour({"NO_COLOR": "1"}, True)
    (True, False)
    """
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "") not in NO for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if environ.get("CLICOLOR") == "0" or environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return False
    # A console of Windows obeys colours only once it was asked to; these do so always.
    return is_terminal and (sys.platform != "win32" or "WT_SESSION" in environ)


def broken(line: str, hang: int, columns: int) -> Iterator[Tuple[str, bool]]:
    """The rows of a line, and whether each is its first; broken between words only.

    >>> [row for row, _ in broken("passed  matmul  is right", 8, 18)]
    ['passed  matmul  is', '      right']
    """
    indent = " " * min(hang, max(2, columns // 3))
    start, end, first, room = 0, 0, True, columns
    for word in re.finditer(r"(?:`[^`]+`|\S)+", line):
        if end and word.end() - start > room:
            yield ("" if first else indent) + line[start:end], first
            start, first, room = word.start(), False, columns - len(indent)
        end = word.end()
    yield ("" if first else indent) + line[start:end], first


def painted(line: str) -> str:
    r"""A line whose status, verdict or hint is coloured.

    >>> painted("failed   matmul"), painted("other")
    ('\x1b[1;31mfailed\x1b[0m   matmul', 'other')
    """
    found = BEGINS.match(line)
    if found is None:
        return line
    verdict, word = found.groups()
    rest = line[found.end() :]
    head = "\x1b[%sm%s\x1b[0m: " % (STRONG, verdict) if verdict else ""
    return "%s\x1b[%sm%s\x1b[0m%s" % (head, CODES[word], word, rest)
