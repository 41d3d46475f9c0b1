"""The messages of programs in a text, as events: rows of `messages/`, and those of `said_*.py`.

A row sees only windows of the text (`Text.near`), so that no text takes long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpusetup.messages.row import Key, Row, found_in, gathered, key_of
from gpusetup.model import Event
from gpusetup.report.text import Text

EVENTS_A_ROW = 3
"""A log says the same a thousand times; different values are different events."""
EVENTS_BY_VALUE = 12
"""Of a row whose events are told apart by one value."""


def said(text: Text, rows: Iterable[Row]) -> Iterator[Event]:
    """The events of all rows whose message is in the text.

    >>> from gpusetup.messages.row import row
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
    """Each message once, in the order of the text; what repeats it adds its one value."""
    first: dict[Key, tuple[int, int, dict[str, str]]] = {}
    repeated: dict[Key, list[str]] = {}
    most = EVENTS_BY_VALUE if one.by else EVENTS_A_ROW
    for start, end, values in matches(text, one):
        key = key_of(one, values)
        if key not in first and len(first) == most:
            break
        first.setdefault(key, (start, end, values))
        if one.gathers in values:
            repeated.setdefault(key, []).append(values[one.gathers])
    for key, (start, end, values) in first.items():
        yield event(text, one.kind, start, end, gathered(one, values, repeated.get(key, ())))


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
    for start, window in text.near(one.needle):
        for first, last, values in found_in(window, one):
            yield start + first, start + last, values
