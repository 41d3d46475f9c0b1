"""What a stream shows: colours or none, how wide it is, and whether it can be drawn on again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NamedTuple, TextIO

COLUMNS = 80
"""Where there is no terminal, or one that does not say."""


class Terminal(NamedTuple):
    """What may be written to a stream."""

    width: int | None
    """Where lines are broken; None where nobody sees columns."""
    colour: bool


def terminal_of(stream: TextIO, *, colour: bool = True) -> Terminal:
    """How a stream is written to; `colour` False: `--no-color` or NO_COLOR."""
    width = columns_of(stream) if stream.isatty() else None
    return Terminal(width, colour and can_be_drawn_on(stream))


def columns_of(stream: TextIO) -> int:
    """`COLUMNS`, else the stream's own, else those of stdout's terminal."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    for one in (stream, sys.__stdout__):
        with suppress(OSError, ValueError, AttributeError):
            if columns := os.get_terminal_size(one.fileno()).columns:  # type: ignore[union-attr]
                return columns
    return COLUMNS


def can_be_drawn_on(stream: TextIO) -> bool:
    """Whether it takes colours, and a screen may be drawn there again; an editor's terminal and a
    log do not."""
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    if not stream.isatty() or dumb:
        return False
    if sys.platform == "win32":
        os.system("")  # a console of Windows obeys codes only after cmd asked it to
    return True
