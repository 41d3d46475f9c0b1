"""Invisible characters: terminal controls, and characters that reverse or hide the text around
them.

No name of a GPU, a package or a program has one, but a stranger's text may. A right-to-left mark
makes a name read as another, and tags (plane 14 of Unicode) hold sentences that only programs read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

INVISIBLE = (
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e01ef"
)
"""Format characters, for a class of a pattern: they print nothing, or turn the text around."""
HIDDEN = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{INVISIBLE}]"


def without_hidden_marks(text: str) -> str:
    """The text with a question mark for each hidden character; newlines and tabs stay.

    >>> without_hidden_marks("GeForce \\u202eXTR\\x1b[2J")
    'GeForce ?XTR?[2J'
    """
    # Most texts are plain, and the test is faster than the pattern.
    is_plain = text.isascii() and text.isprintable()
    if is_plain:
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
        changed = {}
        for key, inner in value.items():
            changed[change(key)] = map_texts(inner, change)
        return changed
    if isinstance(value, list | tuple):
        return [map_texts(inner, change) for inner in value]
    return value
