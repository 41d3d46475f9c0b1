"""Regular expressions that are compiled when first used, because each command needs only a few of
several hundred."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, cast


class _Lazy:
    """A regular expression that is compiled when one of its methods is first used."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern = pattern
        self.flags = flags

    def __getattr__(self, name: str) -> Any:
        """An attribute of the compiled pattern; it is stored, so that later uses are as fast as
        normal ones."""
        compiled = re.compile(self.pattern, self.flags)
        value = getattr(compiled, name)
        setattr(self, name, value)
        return value


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The regular expression, compiled when it is first used.

    >>> [xid.group() for xid in lazy(r"Xid \\d+").finditer("Xid 79, Xid, xid 31, Xid 8")]
    ['Xid 79', 'Xid 8']
    """
    return cast("re.Pattern[str]", _Lazy(pattern, flags))


@cache
def in_any_case(pattern: str) -> re.Pattern[str]:
    """The regular expression, ignoring case; created only once."""
    return lazy(pattern, re.IGNORECASE)


def lowered(text: str) -> str:
    """The text in lower case, with each character at the same position as before.

    `str.lower` does not guarantee that, because it turns some letters into two characters, for
    example the Turkish capital dotted I.
    """
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)
