"""A text with what was read of it, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.render.language import DIM, HEADING, Row, Screen, plain, row, section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpusetup.report.reading import Reading

SHOWN = 200
"""Of a line, so that a long one fills no screen."""


def reading_text(reading: Reading) -> Screen:
    """Lines that were read begin with `>`, and what each became stands below it."""
    lines: list[str] = [
        part
        for number, line in enumerate(reading.lines, 1)
        for part in _line(line, reading.of_line(number))
    ]
    whole = dict.fromkeys(read.became for read in reading.reads if read.line is None)
    lines += section("read from the text as a whole:", _became(whole))
    counted = f"{len(reading.unread)} of {len(reading.lines)} lines were not read"
    return Screen((*lines, "", counted))


def _line(line: str, became: tuple[str, ...]) -> Iterator[Row]:
    shown = plain(line[:SHOWN]).replace("\n", " ")
    yield row((f"{'>' if became else ' '} {shown}", HEADING if became else DIM))
    yield from _became(became)


def _became(words: Iterable[str]) -> Iterator[Row]:
    return (Row(f"    = {one}", hang=6) for one in words)
