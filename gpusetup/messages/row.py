"""One message of one program: a kind of event, and the pattern of its words.

A row costs one search for its letters if the text lacks them; its pattern is compiled only if the text
has them. The named groups of a pattern become the event's values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import in_any_case, lazy, lowered

AROUND = 160
"""Characters before and behind a message in which `unless` is looked for."""


class MessageRow(Frozen):
    """One message of one program, in all its wordings."""

    kind: str
    pattern: str
    """Letter case does not count."""
    needles: tuple[str, ...] = ()
    """Letters, lower case: every form of the message has one of them. If empty, the pattern's own."""
    values: Mapping[str, str] = {}
    """What the message means without naming it."""
    unless: str = ""
    """A pattern that, close to the message, says that something else is meant."""

    @property
    def letters(self) -> tuple[str, ...]:
        """Letters without which the text cannot have the message."""
        if self.needles:
            return self.needles
        return letters_of(self.pattern)


def row(kind: str, pattern: str, *needles: str, unless: str = "", **values: str) -> MessageRow:
    """A message, its fields in the order in which the tables have them."""
    return MessageRow(
        kind=kind,
        pattern=pattern,
        needles=needles,
        values=values,
        unless=unless,
    )


def rows(kind: str, *patterns: str, unless: str = "", **values: str) -> tuple[MessageRow, ...]:
    """Messages of the same kind, values and `unless`, one for each pattern."""
    messages = []
    for pattern in patterns:
        messages.append(row(kind, pattern, unless=unless, **values))
    return tuple(messages)


def says(pattern: str, *needles: str, unless: str = "", **values: str) -> MessageRow:
    """A message of the cause that has it in its record; the cause gives it its kind."""
    kind_of_its_cause = ""
    return row(kind_of_its_cause, pattern, *needles, unless=unless, **values)


# --- the letters that every form of a pattern has ---------------------------------------------------

# `\.`, `\(`: a sign that a backslash makes plain.
ESCAPED_SIGN = re.compile(r"\\(\W)")
PRIVATE_SIGNS = 0xE000
"""Unicode's private characters: no text has them, so that they stand for escaped signs."""
PRIVATE_SIGN = re.compile(f"[{chr(PRIVATE_SIGNS)}-{chr(PRIVATE_SIGNS + 0xFF)}]")
# `[abc]`, `[^)]`, `\w`, `\d`.
CHARACTER_CLASS = re.compile(r"\[\^?\]?[^\]]*\]|\\\w")
# `(?:text)` or `(?P<name>text)`, not repeated and without alternatives: every match has the text.
PLAIN_GROUP = re.compile(r"\((?:\?P<\w+>|\?:)([^()|]*)\)(?![?*{])")
# Any other group without a group in it.
GROUP = re.compile(r"\([^()]*\)")
# `a?`, `a*`, `a{0,3}`; `{2}`; `.`, `^`, `$`, `+`: what may be absent, repeated, or another character.
VARIABLE_PART = re.compile(r".(?:[?*]|\{0?,\d*\})|\{[\d,]*\}\??|[.^$+?]")
GAP = "\0"
"""Stands for what differs from match to match; no pattern has it."""


@cache
def letters_of(pattern: str) -> tuple[str, ...]:
    """The longest letters of each form of a message, lower case: a text without them lacks it.

    >>> letters_of(r"(?:lib)?cuda (?P<what>stub\\.so) \\w+|not a (?:driver|GPU)")
    ('cuda stub.so ', 'not a ')
    """
    plain = ESCAPED_SIGN.sub(_hidden_sign, pattern)
    plain = CHARACTER_CLASS.sub(GAP, plain)
    plain = _without_groups(plain)
    plain = VARIABLE_PART.sub(GAP, plain)
    longest_letters: list[str] = []
    for form in plain.split("|"):
        longest = max(form.split(GAP), key=len)
        letters = lowered(PRIVATE_SIGN.sub(_plain_sign, longest))
        if letters not in longest_letters:
            longest_letters.append(letters)
    return tuple(longest_letters)


def _without_groups(pattern: str) -> str:
    """The pattern with the text of plain groups, and a gap for any other group."""
    while True:
        # From the inside out: the next round sees the groups around those of this one.
        opened = PLAIN_GROUP.sub(r"\1", pattern)
        outer = GROUP.sub(GAP, opened)
        if outer == pattern:
            return pattern
        pattern = outer


def _hidden_sign(escaped: re.Match[str]) -> str:
    """The private character of an escaped sign."""
    sign = escaped[1]
    return chr(PRIVATE_SIGNS + ord(sign))


def _plain_sign(hidden: re.Match[str]) -> str:
    """The sign of a private character."""
    code = ord(hidden[0])
    return chr(code - PRIVATE_SIGNS)


# --- where a message stands -----------------------------------------------------------------------


class MessageMatch(NamedTuple):
    """A place at which a message stands in a text, and the values that it has there."""

    start: int
    end: int
    values: dict[str, str]

    def moved_by(self, offset: int) -> MessageMatch:
        """The same place, counted from so many characters before."""
        return MessageMatch(
            start=self.start + offset,
            end=self.end + offset,
            values=self.values,
        )


OF_A_FEATURE = "foreign-gpu"
"""The kind of a message that may be only the name of a program's feature: `zluda`, `AMD GPU`."""
# `=False`, `: None`, `_available: no`, ` is disabled`.
SWITCHED_OFF = lazy(
    r"['\"`*]{0,2}(?:[ _-](?:is|available|enabled|support(?:ed)?|used|active|backend))*['\"`*]{0,2}"
    r" ?(?:[:=]{1,2}|->)[ '\"`*]{0,3}"
    r"(?:(?:false|null|disabled|none(?! of))\b"
    # In a sentence `no` goes on: "RX 6600: no kernels".
    r"|(?:no|off|0)(?= ?(?:[,;|)\]}'\"\n]|$|[\w-]{2,20} ?[:=])))"
    r"|,? (?:is |was )?(?:disabled|turned off|switched off)\b",
    re.IGNORECASE,
)


def is_switched_off(text: str, end: int) -> bool:
    """Whether the name that ends here is a setting whose value means no, which proves nothing about
    the machine.

    >>> [is_switched_off(f"ZLUDA{rest}", 5) for rest in ("=False cpu=True", ": off", ": No GPU")]
    [True, True, False]
    """
    return SWITCHED_OFF.match(text, end) is not None


def found_in(window: str, row: MessageRow) -> Iterator[MessageMatch]:
    """The places in a piece of text at which a row's message stands."""
    for match in in_any_case(row.pattern).finditer(window):
        if row.unless and _is_meant_otherwise(row.unless, window, match):
            continue
        if row.kind == OF_A_FEATURE and is_switched_off(window, match.end()):
            continue
        values = dict(row.values)
        for name, value in match.groupdict().items():
            # A group of another form of the message has no value.
            if value:
                values[name] = value.strip()
        yield MessageMatch(match.start(), match.end(), values)


def _is_meant_otherwise(unless: str, window: str, match: re.Match[str]) -> bool:
    """Whether the words around a message show that it means something else."""
    first = max(match.start() - AROUND, 0)
    last = match.end() + AROUND
    surroundings = window[first:last]
    other_meaning = in_any_case(unless).search(surroundings)
    return other_meaning is not None
