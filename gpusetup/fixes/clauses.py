"""The clauses of a sentence that says what to do: those that a machine has no use for go."""

from __future__ import annotations

import re

BETWEEN_CLAUSES = r"(; |\. )(?![^()]*\))"


def clauses_without(text: str, foreign: str) -> str:
    """A text without the remarks and the clauses that name what is foreign.

    >>> clauses_without("Start it (`sudo x`); see /etc/x. Else install y (or z)", r"sudo|/etc/")
    'Start it. Else install y (or z)'
    >>> clauses_without("See /etc/x; then install y", r"sudo|/etc/")
    'Then install y'
    """
    bare = re.sub(r" \([^()]*\)", lambda m: "" if re.search(foreign, m[0]) else m[0], text)
    marks = ["", *re.split(BETWEEN_CLAUSES, bare)]
    pairs = zip(marks[::2], marks[1::2], strict=True)
    whole = "".join(mark + clause for mark, clause in pairs if not re.search(foreign, clause))
    first = re.sub(r"^(?:; |\. )", "", whole)
    return first if first == whole else first[:1].upper() + first[1:]
