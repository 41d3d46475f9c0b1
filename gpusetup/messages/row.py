"""Message rows. A row is one message of one program: a kind of event, and a pattern for the
message's words.

A row has strings of which every match contains one. The pattern is compiled only if the text
contains one of them; otherwise the row costs only substring searches. The pattern's named groups
become the event's values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import in_any_case, lowered

AROUND = 160
"""The number of characters before and after a message in which `unless` is looked for."""


class MessageRow(Frozen):
    """One message of a program, in all its wordings."""

    kind: str
    pattern: str
    """A pattern for the message's words, ignoring case."""
    needles: tuple[str, ...] = ()
    """Lower-case strings. Every match contains one of them. If empty, they are derived from the
    pattern."""
    values: Mapping[str, str] = {}
    """Values of the event that the words of the message do not give."""
    unless: str = ""
    """A pattern that, if it matches close to the message, shows that something else is meant."""
    example: str = ""
    """A text that has this message and shows no other cause; "" if a sample elsewhere has it."""

    @property
    def letters(self) -> tuple[str, ...]:
        """Lower-case strings. A text that contains none of them cannot contain the message."""
        return self.needles or letters_of(self.pattern)


def row(
    kind: str, pattern: str, *needles: str, unless: str = "", example: str = "", **values: str
) -> MessageRow:
    """A message row, with its fields in the order in which the tables write them."""
    return MessageRow(
        kind=kind,
        pattern=pattern,
        needles=needles,
        values=values,
        unless=unless,
        example=example,
    )


def says(
    pattern: str, *needles: str, unless: str = "", example: str = "", **values: str
) -> MessageRow:
    """A message row for the record of a cause. It has no kind, because the cause adds its own."""
    return row("", pattern, *needles, unless=unless, example=example, **values)


# --- the letters that every form of a pattern has ---------------------------------------------------

# `\.`, `\(`: a character that loses its special meaning through a backslash.
ESCAPED_SIGN = re.compile(r"\\\W")
# `[abc]`, `[^)]`, `\w`, `\d`.
CHARACTER_CLASS = re.compile(r"\[\^?\]?[^\]]*\]|\\\w")
# `(?:text)` or `(?P<name>text)`, not repeated and without alternatives, so every match contains the
# text.
PLAIN_GROUP = re.compile(r"\((?:\?P<\w+>|\?:)([^()|]*)\)(?![?*{])")
# Any other group that contains no group.
GROUP = re.compile(r"\([^()]*\)")
# `a?`, `a*`, `a{0,3}`; `{2}`; `.`, `^`, `$`, `+`: parts that may be missing, repeated, or any
# character.
VARIABLE_PART = re.compile(r".(?:[?*]|\{0?,\d*\})|\{[\d,]*\}\??|[.^$+?]")
GAP = "\0"
"""Replaces the parts of a pattern that differ from match to match. No pattern contains this
character."""


@cache
def letters_of(pattern: str) -> tuple[str, ...]:
    """For each alternative of a pattern, the longest string that every match contains, in lower
    case. A text without any of these strings has no match.

    >>> letters_of(r"(?:lib)?cuda (?P<what>stub\\.so) \\w+|not a (?:driver|GPU)")
    ('cuda stub', 'not a ')
    """
    plain = ESCAPED_SIGN.sub(GAP, pattern)
    plain = CHARACTER_CLASS.sub(GAP, plain)
    plain = _without_groups(plain)
    plain = VARIABLE_PART.sub(GAP, plain)
    longest_letters: list[str] = []
    for form in plain.split("|"):
        letters = lowered(max(form.split(GAP), key=len))
        if letters not in longest_letters:
            longest_letters.append(letters)
    return tuple(longest_letters)


def _without_groups(pattern: str) -> str:
    """The pattern, with plain groups replaced by their text and all other groups by a gap."""
    while True:
        # Groups are replaced from the inside out. The next round replaces the groups that
        # surrounded these.
        outer = GROUP.sub(GAP, PLAIN_GROUP.sub(r"\1", pattern))
        if outer == pattern:
            return pattern
        pattern = outer


# --- where a message stands -----------------------------------------------------------------------


def found_in(window: str, row: MessageRow) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Where a row's message starts and ends in a piece of text, with its values there."""
    for match in in_any_case(row.pattern).finditer(window):
        around = window[max(match.start() - AROUND, 0) : match.end() + AROUND]
        if row.unless and in_any_case(row.unless).search(around):
            continue
        values = dict(row.values)
        for name, value in match.groupdict().items():
            # Groups that belong to another alternative of the pattern have no value.
            if value:
                values[name] = value.strip()
        yield match.start(), match.end(), values
