"""A text with what was read of it, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.render.language import plain

if TYPE_CHECKING:
    from gpusetup.report.reading import Reading

SHOWN = 200
"""Of a line, so that a long one fills no screen."""


def reading_text(reading: Reading) -> str:
    """Lines that were read begin with `>`, and what each became stands below it."""
    parts = [
        part
        for number, line in enumerate(reading.lines, 1)
        for part in _line(line, reading.of_line(number))
    ]
    whole = tuple(dict.fromkeys(read.became for read in reading.reads if read.line is None))
    if whole:
        parts += ["", "read from the text as a whole:", *(f"    = {plain(one)}" for one in whole)]
    counted = f"{len(reading.unread)} of {len(reading.lines)} lines were not read"
    return "\n".join((*parts, "", counted)) + "\n"


def _line(line: str, became: tuple[str, ...]) -> tuple[str, ...]:
    shown = plain(line[:SHOWN]).replace("\n", " ")
    return (f"{'>' if became else ' '} {shown}", *(f"    = {plain(one)}" for one in became))
