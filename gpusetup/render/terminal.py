"""What a stream shows: colours or none, how wide it is, and whether it can be drawn on again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple, TextIO

COLUMNS = 80
"""Where there is no terminal, or one that does not say."""
NO = ("", "0")
"""What switches a variable of the colours off, where it is set at all."""


class Terminal(NamedTuple):
    """What may be written to a stream."""

    is_terminal: bool
    colour: bool
    columns: int

    @property
    def width(self) -> int | None:
        """Where lines are broken; None where nobody sees columns."""
        return self.columns if self.is_terminal else None


def terminal_of(stream: TextIO, *, colour: bool = True) -> Terminal:
    """How a stream is written to; `colour` False: `--no-color`."""
    shows = stream.isatty()
    wanted = colour and wants_colour(os.environ, is_terminal=shows)
    return Terminal(shows, wanted and (not shows or obeys_codes(stream)), columns_of(stream))


def wants_colour(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """NO_COLOR before all, then FORCE_COLOR and CLICOLOR_FORCE, else what the terminal can.

    >>> wants_colour({"TERM": "xterm"}, is_terminal=True), wants_colour({}, is_terminal=False)
    (True, False)
    >>> wants_colour({"FORCE_COLOR": "1"}, is_terminal=False)
    True
    >>> wants_colour({"FORCE_COLOR": "1", "NO_COLOR": "1"}, is_terminal=True)
    False
    >>> wants_colour({"TERM": "dumb"}, is_terminal=True)
    False
    """
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "") not in NO for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if environ.get("CLICOLOR") == "0" or is_dumb(environ):
        return False
    return is_terminal


def is_dumb(environ: Mapping[str, str]) -> bool:
    """A terminal that knows no codes: an editor's, a log."""
    return environ.get("TERM", "").lower() in ("dumb", "unknown")


def columns_of(stream: TextIO) -> int:
    """`COLUMNS`, else the stream's own, else those of stdout's terminal."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    return _columns(stream) or _columns(sys.__stdout__) or COLUMNS


def _columns(stream: TextIO | None) -> int:
    """0 where there is no terminal, or one that does not say."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream else 0
    except (OSError, ValueError):
        return 0


def can_be_drawn_on(stream: TextIO) -> bool:
    """Whether a screen may be drawn there again and again."""
    return stream.isatty() and not is_dumb(os.environ) and obeys_codes(stream)


def obeys_codes(stream: TextIO) -> bool:
    """On Windows a console obeys colours only once it was asked to; elsewhere each does."""
    if sys.platform != "win32":
        return True
    import ctypes
    import msvcrt

    kernel, obey = ctypes.windll.kernel32, 4
    mode = ctypes.c_ulong()
    try:
        handle = msvcrt.get_osfhandle(stream.fileno())
    except (OSError, ValueError):
        return False
    if not kernel.GetConsoleMode(handle, ctypes.byref(mode)):
        return True  # no console of Windows' own: mintty
    return bool(mode.value & obey or kernel.SetConsoleMode(handle, mode.value | obey))
