"""What programs say, as rows: a kind of event, a few letters to look for, a pattern near them.

A row costs one search for its letters where they are absent; its pattern is compiled when they are
there, and sees only windows of the text (`Text.near`), so that no text takes long. The named groups
of a pattern become the event's values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from gpusetup.model import Event
from gpusetup.report.text import Text
from gpusetup.value import Value

EVENTS_A_ROW = 3
"""A log says the same a thousand times; different values are different events."""
EVENTS_BY_VALUE = 12
"""Of a row whose events are told apart by one value: a node with eight GPUs says each eightfold."""
AROUND = 160


class Row(Value):
    """One message of one program, in its versions."""

    kind: str
    needle: str
    """Letters, lower case, that every form of the message has."""
    pattern: str = ""
    """Near the needle; "" where the needle says it all. Letter case does not count."""
    values: Mapping[str, str] = {}
    """What the message says without naming it."""
    unless: str = ""
    """A pattern that, close to the message, says that something else is meant."""
    by: str = ""
    """The one value that tells events apart, where others only repeat them (which GPU says it)."""


def row(
    kind: str, needle: str, pattern: str = "", *, unless: str = "", by: str = "", **values: str
) -> Row:
    return Row(kind=kind, needle=needle, pattern=pattern, unless=unless, by=by, values=values)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def said(text: Text, rows: Iterable[Row]) -> Iterator[Event]:
    """The events of all rows whose message is in the text.

    >>> from gpusetup.report.text import text_of
    >>> rows = (row("xid", "xid", r"Xid \\((?P<bus_id>[\\d:.]+)\\): (?P<number>\\d+)"),)
    >>> dict(next(said(text_of("NVRM: Xid (0000:01:00): 79, GPU has"), rows)).values)
    {'bus_id': '0000:01:00', 'number': '79'}
    """
    low = text.low
    for one in rows:
        if one.needle in low:
            yield from _events(text, one)


def _events(text: Text, one: Row) -> Iterator[Event]:
    seen: set[tuple[tuple[str, str], ...]] = set()
    most = EVENTS_BY_VALUE if one.by else EVENTS_A_ROW
    for first, last, values in matches(text, one):
        key = ((one.by, values.get(one.by, "")),) if one.by else tuple(values.items())
        if key in seen:
            continue
        seen.add(key)
        yield event(text, one.kind, first, last, values)
        if len(seen) == most:
            return


def event(text: Text, kind: str, first: int, last: int, values: Mapping[str, str]) -> Event:
    """An event with the place that it was read at, and where the program ran if that shows."""
    where = text.where(first)
    return Event(
        kind=kind,
        values={**values, "place": where} if where else dict(values),
        source=text.source(first),
        text=text.shown(first, last),
    )


def matches(text: Text, one: Row) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Where a row's message stands, and its values."""
    pattern = compiled(one.pattern or re.escape(one.needle))
    for start, window in text.near(one.needle):
        for found in pattern.finditer(window):
            if one.unless and _is_meant_otherwise(one.unless, window, found):
                continue
            named = {name: value.strip() for name, value in found.groupdict().items() if value}
            yield start + found.start(), start + found.end(), {**one.values, **named}


def _is_meant_otherwise(unless: str, window: str, found: re.Match[str]) -> bool:
    around = window[max(found.start() - AROUND, 0) : found.end() + AROUND]
    return compiled(unless).search(around) is not None
