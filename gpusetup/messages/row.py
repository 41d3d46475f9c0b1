"""One message of one program: a kind of event, and the pattern of its words.

A row costs one search for its letters where they are absent; its pattern is compiled when they are
there. The named groups of a pattern become the event's values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import in_any_case, lowered

AROUND = 160

SIGN = re.compile(r"\\(\W)")
"""A sign that a backslash makes plain."""
PLAIN = 0xE000
"""Where such a sign is kept, beyond the letters that a text has."""
ANY_OF = re.compile(r"\[\^?\]?[^\]]*\]|\\\w")
TRANSPARENT = re.compile(r"\((?:\?P<\w+>|\?:)([^()|]*)\)(?![?*{])")
"""A group that is there in any case, in one form."""
GROUP = re.compile(r"\([^()]*\)")
LOOSE = re.compile(r".(?:[?*]|\{0?,\d*\})|\{[\d,]*\}\??|[.^$+?]")
"""What may be absent, be another letter, or be repeated."""


class Row(Frozen):
    """One message of one program, in its versions."""

    kind: str
    pattern: str
    """Letter case does not count."""
    needles: tuple[str, ...] = ()
    """Letters, lower case: every form of the message has one of them. None: the pattern's own."""
    values: Mapping[str, str] = {}
    """What the message says without naming it."""
    unless: str = ""
    """A pattern that, close to the message, says that something else is meant."""

    @property
    def letters(self) -> tuple[str, ...]:
        return self.needles or letters_of(self.pattern)


def row(kind: str, pattern: str, *needles: str, unless: str = "", **values: str) -> Row:
    return Row(kind=kind, needles=needles, pattern=pattern, unless=unless, values=values)


def rows(kind: str, *patterns: str, unless: str = "", **values: str) -> tuple[Row, ...]:
    """Rows that differ in their pattern alone."""
    return tuple(row(kind, pattern, unless=unless, **values) for pattern in patterns)


def says(pattern: str, *needles: str, unless: str = "", **values: str) -> Row:
    """A message of the cause in whose record it stands."""
    return row("", pattern, *needles, unless=unless, **values)


@cache
def letters_of(pattern: str) -> tuple[str, ...]:
    """The longest letters of each form of a message, lower case: a text without them lacks it.

    >>> letters_of(r"(?:lib)?cuda (?P<what>stub\\.so) \\w+|not a (?:driver|GPU)")
    ('cuda stub.so ', 'not a ')
    """
    bare = SIGN.sub(lambda sign: chr(PLAIN + ord(sign[1])), pattern)
    bare = ANY_OF.sub("\0", bare)
    while bare != (outer := GROUP.sub("\0", TRANSPARENT.sub(r"\1", bare))):
        bare = outer
    longest = (max(form.split("\0"), key=len) for form in LOOSE.sub("\0", bare).split("|"))
    return tuple(dict.fromkeys(lowered(re.sub(SIGNS, _sign, form)) for form in longest))


SIGNS = f"[{chr(PLAIN)}-{chr(PLAIN + 0xFF)}]"


def _sign(kept: re.Match[str]) -> str:
    return chr(ord(kept[0]) - PLAIN)


def found_in(window: str, one: Row) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Where a row's message stands in a piece of text, and its values."""
    for found in in_any_case(one.pattern).finditer(window):
        if one.unless and _is_meant_otherwise(one.unless, window, found):
            continue
        named = {name: value.strip() for name, value in found.groupdict().items() if value}
        yield found.start(), found.end(), {**one.values, **named}


def _is_meant_otherwise(unless: str, window: str, found: re.Match[str]) -> bool:
    around = window[max(found.start() - AROUND, 0) : found.end() + AROUND]
    return in_any_case(unless).search(around) is not None
