"""Patterns that are compiled when they are first tried: a command tries few of the hundreds."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, cast


class _Lazy:
    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self.flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """The compiled pattern's own, kept, so that it is as quick."""
        value = getattr(re.compile(self.pattern, self.flags), name)
        setattr(self, name, value)
        return value


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """
    >>> [found.group() for found in lazy(r"Xid \\d+").finditer("Xid 79, Xid, xid 31, Xid 8")]
    ['Xid 79', 'Xid 8']
    """
    return cast("re.Pattern[str]", _Lazy(pattern, flags))


@cache
def in_any_case(pattern: str) -> re.Pattern[str]:
    """The pattern whose letters' case does not count, made once."""
    return lazy(pattern, re.IGNORECASE)


def lowered(text: str) -> str:
    """In lower case, character by character, so that places stay what they are."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join([small if len(small := char.lower()) == 1 else char for char in text])
