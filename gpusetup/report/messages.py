"""The messages of programs in a text, as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpusetup.messages.row import Row
from gpusetup.messages.search import search
from gpusetup.model.machine import Event
from gpusetup.report.text import Text


def events_of(text: Text, rows: Iterable[Row]) -> Iterator[Event]:
    """The events of all rows whose message is in the text."""
    for found in search(text, rows):
        yield event(text, found.row.kind, found.first, found.last, found.values)


def event(text: Text, kind: str, first: int, last: int, values: Mapping[str, str]) -> Event:
    """An event with the place that it was read at."""
    return Event(
        kind=kind,
        values=dict(values),
        source=text.source(first),
        text=text.shown(first, last),
    )
