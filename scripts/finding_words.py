"""Small words of the pages of the findings: sentences, choices, quotations."""

from __future__ import annotations

import re
from collections.abc import Sequence


def capital(text: str) -> str:
    """A name as the beginning of a sentence; names of programs keep their small letter.

    >>> capital("the driver is old"), capital("torch is old")
    ('The driver is old', 'torch is old')
    """
    return (
        text[:1].upper() + text[1:]
        if re.match(r"(?:the|a|an|this|not|no|nothing) ", text)
        else text
    )


def ended(text: str) -> str:
    """A text that ends as a sentence.

    >>> ended("Replace the build: "), ended("Is it there?"), ended("")
    ('Replace the build.', 'Is it there?', '')
    """
    text = text.rstrip(" :;,")
    return text if not text or text.endswith((".", "!", "?", ".)", "?)")) else f"{text}."


def alternatives(names: Sequence[str]) -> str:
    """Names as a choice.

    >>> alternatives(("a", "b", "c")), alternatives(("a",))
    ('a, b or c', 'a')
    """
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def shortened(text: str) -> str:
    """A long quotation, cut between words.

    >>> shortened("word " * 40)[-6:]
    'word …'
    """
    longest = 90
    return text if len(text) <= longest else f"{text[:longest].rsplit(' ', 1)[0]} …"
