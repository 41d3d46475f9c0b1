"""Where messages stand in a text: one search for the live kernel log and for a pasted report.

All of a text on one line, with single spaces: so a message reads the same however it was wrapped.
A row sees only windows around its needle, so that no text takes long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Generic, TypeVar

from gpusetup.messages.row import Key, Row, found_in, gathered, key_of
from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import lowered

BEFORE, AFTER = 600, 1200
WHOLE = 2 * (BEFORE + AFTER)
"""A text of this length is a window of its own."""
WORD = 200
ATTEMPTS = 60
"""How often a needle is looked at, half of it from the end: a log repeats itself, and its end counts."""
STEP = AFTER - BEFORE
EVENTS_A_ROW = 3
"""A log says the same a thousand times; different values are different events."""
EVENTS_BY_VALUE = 12
"""Of a row whose events are told apart by one value."""
R = TypeVar("R")


class Flat(Frozen):
    """A text on one line."""

    flat: str
    low: str
    """`flat` in lower case, of the same length."""
    starts: tuple[int, ...]
    """Where each line begins in `flat`."""
    grams: frozenset[str]
    """`grams_of` `low`."""

    def line_at(self, place: int) -> int:
        """The number of the line (from 0) that holds a place of `flat`."""
        return max(bisect_right(self.starts, place) - 1, 0)

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


def grams_of(text: str) -> set[str]:
    """Each four letters of a text that stand together, and none.

    >>> sorted(grams_of("xformer")), grams_of("gpu")
    (['', 'form', 'orme', 'rmer', 'xfor'], {''})
    """
    return {"", *map("".join, zip(text, text[1:], text[2:], text[3:], strict=False))}


class Index(Generic[R]):
    """Which of many rows may be in a text: those whose needle is, found by its first and last letters."""

    def __init__(self, rows: Iterable[tuple[R, tuple[str, ...]]]) -> None:
        """Each row with its needles, of which one is enough."""
        self._rows = tuple(rows)

    @cached_property
    def _by_gram(self) -> dict[str, list[tuple[str, str, int]]]:
        """The needles by their first four letters, with the last four and the place of the row.

        Those of a needle that is shorter are "".
        """
        by_gram: dict[str, list[tuple[str, str, int]]] = {}
        for at, (_, needles) in enumerate(self._rows):
            for needle in needles:
                first, last = (needle[:4], needle[-4:]) if len(needle) >= 4 else ("", "")
                by_gram.setdefault(first, []).append((last, needle, at))
        return by_gram

    def rows_in(self, text: Flat) -> Iterator[R]:
        """Those of which a needle is in the text, in their order."""
        low, grams = text.low, text.grams
        shared = grams & self._by_gram.keys()
        near = (each for first in shared for each in self._by_gram[first])
        found = {at for last, needle, at in near if last in grams and needle in low}
        for at in sorted(found):
            yield self._rows[at][0]


def _places(low: str, needle: str) -> list[int]:
    """Where windows begin, in the order of the text: from its start on, and then before its end."""
    places: list[int] = []
    at = low.find(needle)
    while at >= 0:
        places.append(at)
        at = low.find(needle, at + STEP)
    half = ATTEMPTS // 2
    return places[:half] + places[half:][-half:]


def flat_of(parts: Iterable[str]) -> Flat:
    """
    >>> text = flat_of(["Found  no NVIDIA", "driver on your system"])
    >>> text.flat, text.line_at(20)
    ('Found no NVIDIA driver on your system', 1)
    """
    lines = [" ".join(part.split()) for part in parts]
    flat = " ".join(filter(None, lines))
    low, starts = lowered(flat), tuple(_starts_of(lines))
    return Flat(flat=flat, low=low, starts=starts, grams=frozenset(grams_of(low)))


def _starts_of(lines: Iterable[str]) -> Iterator[int]:
    """Where each line begins once all stand on one."""
    place = 0
    for line in lines:
        yield place
        place += len(line) + 1 if line else 0


class Found(Frozen):
    """A message in a text: its row, its place and its values."""

    row: Row
    first: int
    last: int
    values: dict[str, str]


def indexed(rows: Iterable[Row]) -> Index[Row]:
    return Index((one, one.needles) for one in rows)


def search(text: Flat, rows: Index[Row]) -> Iterator[Found]:
    """The messages of all rows that are in the text.

    >>> from gpusetup.messages.row import row
    >>> rows = indexed([row("xid", "xid", r"Xid \\((?P<bus_id>[\\d:.]+)\\): (?P<number>\\d+)")])
    >>> next(search(flat_of(["NVRM: Xid (0000:01:00): 79, GPU has"]), rows)).values
    {'bus_id': '0000:01:00', 'number': '79'}
    """
    for one in rows.rows_in(text):
        yield from _of_row(text, one)


def _of_row(text: Flat, one: Row) -> Iterator[Found]:
    """Each message once, in the order of the text; what repeats it adds its one value."""
    first: dict[Key, Found] = {}
    repeated: dict[Key, list[str]] = {}
    for found in matches(text, one):
        key = key_of(one, found.values)
        if key not in first and len(first) == (EVENTS_BY_VALUE if one.by else EVENTS_A_ROW):
            break
        first.setdefault(key, found)
        if one.gathers in found.values:
            repeated.setdefault(key, []).append(found.values[one.gathers])
    for key, found in first.items():
        values = gathered(one, found.values, repeated.get(key, ()))
        yield Found(row=one, first=found.first, last=found.last, values=values)


def matches(text: Flat, one: Row) -> Iterator[Found]:
    """Where a row's message stands, as often as it does."""
    for start, window in text.near(*one.needles):
        for first, last, values in found_in(window, one):
            yield Found(row=one, first=start + first, last=start + last, values=values)
