"""Invisible characters: terminal controls, and characters that reverse or hide the text around
them.

The names of GPUs, packages and programs contain none of them, but a stranger's text may. For
example, a right-to-left mark makes a name look like another, and tag characters (plane 14 of
Unicode) can contain sentences that only programs read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

INVISIBLE = (
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e01ef"
)
"""Format characters, as part of a regular expression's character class. They print nothing or
change the direction of the text."""
HIDDEN = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{INVISIBLE}]"
"""Also matches lone surrogates, which stand for bytes that are not valid UTF-8."""


def without_hidden_marks(text: str) -> str:
    """The text with each hidden character replaced by a question mark; newlines and tabs are kept.

    >>> without_hidden_marks("GeForce \\u202eXTR\\x1b[2J")
    'GeForce ?XTR?[2J'
    """
    # Most texts contain no hidden characters, and this test is faster than the pattern.
    if text.isascii() and text.isprintable():
        return text
    return re.sub(HIDDEN, "?", text)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A plain value with `change` applied to all its strings, including dict keys; tuples become
    lists.

    >>> map_texts({"gpus": ("A100", 4)}, str.lower)
    {'gpus': ['a100', 4]}
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): map_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(inner, change) for inner in value]
    return value
