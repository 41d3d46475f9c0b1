"""Marks that are not seen: controls of a terminal, and characters that turn or hide what is read.

No name of a GPU, a package or a program has one. A stranger's text may: in a right-to-left mark a
name reads as another, in the tags of plane 14 a sentence stands that only a program reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

INVISIBLE = (
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e01ef"
)
"""Format characters, for a class of a pattern: they print nothing, or turn what stands beside."""
HIDDEN = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{INVISIBLE}]"


def without_hidden_marks(text: str) -> str:
    """A text with a question mark for each hidden mark; newline and tab stay.

    >>> without_hidden_marks("GeForce \\u202eXTR\\x1b[2J")
    'GeForce ?XTR?[2J'
    """
    return text if text.isascii() and text.isprintable() else re.sub(HIDDEN, "?", text)


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A plain value with all its texts changed, names of fields too; tuples become lists.

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
