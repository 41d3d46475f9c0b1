"""Searches that ignore case: patterns, and a text in lower case whose positions stay the same."""

from __future__ import annotations

import re
from functools import cache


@cache
def in_any_case(pattern: str) -> re.Pattern[str]:
    """The regular expression, ignoring case; compiled when it is first used, because each
    command needs only a few of several hundred."""
    return re.compile(pattern, re.IGNORECASE)


def lowered(text: str) -> str:
    """The text in lower case, with each character at the same position as before.

    `str.lower` does not guarantee that, because it turns some letters into two characters, for
    example the Turkish capital dotted I.
    """
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)
