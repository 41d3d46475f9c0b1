"""Patterns that are compiled when they are first used, because a command uses few of the
hundreds."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, cast


class _Lazy:
    """A pattern that is compiled when one of its methods is first used."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern = pattern
        self.flags = flags

    def __getattr__(self, name: str) -> Any:
        """The compiled pattern's attribute. It is kept, so that later uses cost nothing more."""
        compiled = re.compile(self.pattern, self.flags)
        value = getattr(compiled, name)
        setattr(self, name, value)
        return value


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The pattern, compiled when it is first tried.

    >>> [xid.group() for xid in lazy(r"Xid \\d+").finditer("Xid 79, Xid, xid 31, Xid 8")]
    ['Xid 79', 'Xid 8']
    """
    return cast("re.Pattern[str]", _Lazy(pattern, flags))


@cache
def in_any_case(pattern: str) -> re.Pattern[str]:
    """The pattern without regard to case, made once."""
    return lazy(pattern, re.IGNORECASE)


def lowered(text: str) -> str:
    """A text in lower case, with each letter at its own position.

    `str.lower` makes two letters of some: of the Turkish capital dotted I, for example.
    """
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    letters = []
    for letter in text:
        lower_letter = letter.lower()
        letters.append(lower_letter if len(lower_letter) == 1 else letter)
    return "".join(letters)
