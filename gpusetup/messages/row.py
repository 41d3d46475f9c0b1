"""One message of one program: a kind of event, a few letters to look for, a pattern near them.

A row costs one search for its letters where they are absent; its pattern is compiled when they are
there. The named groups of a pattern become the event's values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import in_any_case

AROUND = 160

Letters = str | tuple[str, ...]
"""Lower case: every form of a message has one of them."""
Patterns = Mapping[Letters, str]
"""Letters -> the pattern near them."""


class Row(Frozen):
    """One message of one program, in its versions."""

    kind: str
    needles: tuple[str, ...]
    """Letters, lower case: every form of the message has one of them."""
    pattern: str = ""
    """Near a needle; "" if the one needle says it all. Letter case does not count."""
    values: Mapping[str, str] = {}
    """What the message says without naming it."""
    unless: str = ""
    """A pattern that, close to the message, says that something else is meant."""


def row(
    kind: str,
    needle: Letters,
    pattern: str = "",
    *,
    unless: str = "",
    **values: str,
) -> Row:
    return Row(
        kind=kind,
        needles=(needle,) if isinstance(needle, str) else needle,
        pattern=pattern,
        unless=unless,
        values=values,
    )


def rows(kind: str, patterns: Patterns, **values: str) -> tuple[Row, ...]:
    """Rows that differ in their letters alone, and in the pattern near them."""
    return tuple(row(kind, needle, pattern, **values) for needle, pattern in patterns.items())


def says(message: Letters | Patterns, pattern: str = "", **more: str) -> tuple[Row, ...]:
    """Messages of the cause in whose record they stand."""
    return rows("", message if isinstance(message, Mapping) else {message: pattern}, **more)


def found_in(window: str, one: Row) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Where a row's message stands in a piece of text, and its values."""
    pattern = in_any_case(one.pattern or re.escape(one.needles[0]))
    for found in pattern.finditer(window):
        if one.unless and _is_meant_otherwise(one.unless, window, found):
            continue
        named = {name: value.strip() for name, value in found.groupdict().items() if value}
        yield found.start(), found.end(), {**one.values, **named}


def _is_meant_otherwise(unless: str, window: str, found: re.Match[str]) -> bool:
    around = window[max(found.start() - AROUND, 0) : found.end() + AROUND]
    return in_any_case(unless).search(around) is not None
