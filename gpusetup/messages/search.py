"""Where messages stand in a text: one search for the live kernel log and for a pasted report.

All of a text on one line, with single spaces: so a message reads the same however it was wrapped.
A row sees only windows around its needle, so that no text takes long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from gpusetup.messages.row import Row, found_in
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lowered

BEFORE, AFTER = 600, 1200
WHOLE = 2 * (BEFORE + AFTER)
"""A text of this length is a window of its own."""
WORD = 200
ATTEMPTS = 60
"""How often a needle is looked at, half of it from the end: a log repeats itself, and its end counts."""
STEP = AFTER - BEFORE
EVENTS_A_ROW = 24
"""A log says the same a thousand times; different values are different events."""


SHOWN = 300


def line_source(number: int) -> str:
    """How a source names a line of a report, counted from 1."""
    return f"report, line {number}"


class Text(Frozen):
    """Lines, and all of them on one line."""

    lines: tuple[str, ...]
    flat: str
    low: str
    """`flat` in lower case, of the same length."""
    starts: tuple[int, ...]
    """Where each line begins in `flat`."""

    def line_at(self, place: int) -> int:
        """The number of the line (from 0) that holds a place of `flat`."""
        return max(bisect_right(self.starts, place) - 1, 0)

    def source(self, place: int) -> str:
        """The line that holds a place of `flat`, as a source names it."""
        return line_source(self.line_at(place) + 1)

    def shown(self, first: int, last: int) -> str:
        """The lines that a piece of `flat` lies in, as evidence."""
        lines = self.lines[self.line_at(first) : self.line_at(max(last - 1, first)) + 1]
        whole = " ".join(" ".join(lines).split())
        return whole if len(whole) <= SHOWN else self.flat[first:last].strip()[:SHOWN]

    def near(self, *needles: str) -> Iterator[tuple[int, str]]:
        """Windows of `flat` around needles (lower case): where each begins, and its text.

        They overlap, so that what lies at the end of one is whole in the next.
        """
        if len(self.flat) <= WHOLE:
            if any(needle in self.low for needle in needles):
                yield 0, self.flat
            return
        for at in (at for needle in needles for at in _places(self.low, needle)):
            first, last = self._between_words(max(at - BEFORE, 0), at + AFTER)
            yield first, self.flat[first:last]

    def _between_words(self, first: int, last: int) -> tuple[int, int]:
        """A window that cuts no word: half a number is another number."""
        before = self.flat.rfind(" ", max(first - WORD, 0), first) + 1
        after = self.flat.find(" ", last, last + WORD)
        return before or first, after if after >= 0 else last


def _places(low: str, needle: str) -> list[int]:
    """Where windows begin, in the order of the text: from its start on, and then before its end."""
    places: list[int] = []
    at = low.find(needle)
    while at >= 0:
        places.append(at)
        at = low.find(needle, at + STEP)
    half = ATTEMPTS // 2
    return places[:half] + places[half:][-half:]


def text_of(lines: Iterable[str]) -> Text:
    """
    >>> text = text_of(["Found  no NVIDIA", "driver on your system"])
    >>> text.flat, text.line_at(20)
    ('Found no NVIDIA driver on your system', 1)
    """
    kept = tuple(lines)
    bare = [" ".join(line.split()) for line in kept]
    flat = " ".join(filter(None, bare))
    starts = accumulate((len(line) + 1 if line else 0 for line in bare), initial=0)
    return Text(lines=kept, flat=flat, low=lowered(flat), starts=tuple(starts)[: len(kept)])


def events_of(text: Text, rows: Iterable[Row]) -> Iterator[Event]:
    """The events of all rows whose message is in the text, each different one once.

    >>> from gpusetup.messages.row import row
    >>> rows = [row("xid", r"Xid \\((?P<bus_id>[\\d:.]+)\\): (?P<number>\\d+)")]
    >>> next(events_of(text_of(["NVRM: Xid (0000:01:00): 79, GPU has"]), rows)).values
    {'bus_id': '0000:01:00', 'number': '79'}
    """
    for one in rows:
        if any(letters in text.low for letters in one.letters):
            found: dict[frozenset[tuple[str, str]], Event] = {}
            for first, last, values in matches(text, one):
                found.setdefault(
                    frozenset(values.items()), event(text, one.kind, first, last, values)
                )
                if len(found) == EVENTS_A_ROW:
                    break
            yield from found.values()


def event(text: Text, kind: str, first: int, last: int, values: Mapping[str, str]) -> Event:
    """An event with the place that it was read at."""
    shown = text.shown(first, last)
    return Event(kind=kind, values=dict(values), source=text.source(first), text=shown)


def matches(text: Text, one: Row) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Where a row's message stands, as often as it does, and its values."""
    for start, window in text.near(*one.letters):
        for first, last, values in found_in(window, one):
            yield start + first, start + last, values
