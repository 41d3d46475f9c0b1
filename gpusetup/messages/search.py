"""Finds messages in a text, both for the live kernel log and for a pasted report.

The text is searched as a single line with single spaces, so a message is found however it was
wrapped. A pattern is only applied to windows around certain strings, so that no text takes long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from gpusetup.messages.row import MessageRow, found_in, letters_of
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lowered

BEFORE, AFTER = 600, 1200
"""The number of characters in a window before and after the position of a needle."""
WHOLE = 2 * (BEFORE + AFTER)
"""A text with at most this many characters is searched as a whole, without windows."""
LONGEST_WORD = 200
"""A window may grow by this many characters at each end, so that it does not cut a word."""
MAX_WINDOWS = 60
"""The most windows around the same needle, half of them at the end of the text. A log repeats
itself, and the failure is near its end."""
STEP = AFTER - BEFORE
"""The smallest distance between two needles that both get a window. It is small enough that windows
overlap."""
EVENTS_A_ROW = 24
"""The most different events for one message. A log may repeat a message a thousand times."""
SHOWN_CHARACTERS = 300
"""At most this many characters are quoted as evidence."""


def line_source(number: int) -> str:
    """The source name for a line of a report, counted from 1."""
    return f"report, line {number}"


class Text(Frozen):
    """A text, both as separate lines and joined to a single line."""

    lines: tuple[str, ...]
    flat: str
    """All lines joined by single spaces."""
    low: str
    """`flat` in lower case, of the same length."""
    starts: tuple[int, ...]
    """Where each line begins in `flat`."""
    logged: frozenset[int] = frozenset()
    """The numbers (from 1) of lines that a program logged: they begin with a time, a level or a
    rank."""

    def has_any(self, needles: Iterable[str]) -> bool:
        """Whether the text contains one of these lower-case strings.

        This is much faster than a pattern, so readers call it first.
        """
        return any(needle in self.low for needle in needles)

    def line_at(self, position: int) -> int:
        """The index (from 0) of the line that contains a position in `flat`."""
        return max(bisect_right(self.starts, position) - 1, 0)

    def source(self, position: int) -> str:
        """The source name of the line that contains a position in `flat`."""
        return line_source(self.line_at(position) + 1)

    def shown(self, start: int, end: int) -> str:
        """The lines that contain a piece of `flat`, to quote as evidence. If they are too long,
        only the piece."""
        lines = " ".join(self.lines[self.line_at(start) : self.line_at(max(end - 1, start)) + 1])
        quote = " ".join(lines.split())
        if len(quote) <= SHOWN_CHARACTERS:
            return quote
        return self.flat[start:end].strip()[:SHOWN_CHARACTERS]

    def event(self, kind: str, start: int, end: int, values: Mapping[str, str]) -> Event:
        """An event for a piece of `flat`, with the lines that contain it as evidence."""
        return Event(
            kind=kind,
            values=dict(values),
            source=self.source(start),
            text=self.shown(start, end),
        )

    def near(self, *needles: str) -> Iterator[tuple[int, str]]:
        """Windows of `flat` around each lower-case needle, with their start positions there.

        The windows overlap, so that a message at the end of one is complete in the next.
        """
        if len(self.flat) <= WHOLE:
            if self.has_any(needles):
                yield 0, self.flat
            return
        for needle in needles:
            for position in _positions(self.low, needle):
                yield self._window_around(position)

    def _window_around(self, position: int) -> tuple[int, str]:
        """The window around a position. Words are not cut, because half a number is a different
        number."""
        start = max(position - BEFORE, 0)
        end = position + AFTER
        # `rfind` returns -1 if there is no space, so `word_start` is 0.
        word_start = self.flat.rfind(" ", max(start - LONGEST_WORD, 0), start) + 1
        if word_start > 0:
            start = word_start
        word_end = self.flat.find(" ", end, end + LONGEST_WORD)
        if word_end >= 0:
            end = word_end
        return start, self.flat[start:end]


def _positions(low: str, needle: str) -> list[int]:
    """Positions of a needle that are at least `STEP` apart. If there are too many, the first and
    the last ones."""
    positions: list[int] = []
    position = low.find(needle)
    while position >= 0:
        positions.append(position)
        position = low.find(needle, position + STEP)
    half = MAX_WINDOWS // 2
    return positions[:half] + positions[half:][-half:]


def text_of(lines: Iterable[str], logged: Iterable[int] = ()) -> Text:
    """These lines as a text that can be searched; `logged`: see `Text.logged`.

    >>> text = text_of(["Found  no NVIDIA", "driver on your system"])
    >>> text.flat, text.line_at(20)
    ('Found no NVIDIA driver on your system', 1)
    """
    all_lines = tuple(lines)
    bare_lines = [" ".join(line.split()) for line in all_lines]
    flat = " ".join(filter(None, bare_lines))
    # In `flat`, each line that is not empty is followed by a space.
    lengths = [len(line) + 1 if line else 0 for line in bare_lines]
    return Text(
        lines=all_lines,
        flat=flat,
        low=lowered(flat),
        starts=tuple(accumulate(lengths, initial=0))[: len(bare_lines)],
        logged=frozenset(logged),
    )


def events_of(text: Text, rows: Iterable[MessageRow]) -> Iterator[Event]:
    """The events for all rows whose message occurs in the text, each different event once.

    >>> from gpusetup.messages.row import row
    >>> rows = [row("xid", r"Xid \\((?P<bus_id>[\\d:.]+)\\): (?P<number>\\d+)")]
    >>> next(events_of(text_of(["NVRM: Xid (0000:01:00): 79, GPU has"]), rows)).values
    {'bus_id': '0000:01:00', 'number': '79'}
    """
    low = text.low
    for row in rows:
        # A loop, because a call for each of the many rows would take longer than its search.
        for letters in row.needles or letters_of(row.pattern):
            if letters in low:
                yield from _events_of_row(text, row)
                break


def _events_of_row(text: Text, row: MessageRow) -> Iterator[Event]:
    """One event for each different set of values that a row's message has in the text."""
    already_found: set[frozenset[tuple[str, str]]] = set()
    for offset, window in text.near(*row.letters):
        for start, end, values in found_in(window, row):
            items = frozenset(values.items())
            if items not in already_found and len(already_found) < EVENTS_A_ROW:
                already_found.add(items)
                yield text.event(row.kind, offset + start, offset + end, values)
