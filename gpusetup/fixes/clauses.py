"""Removes from a fix's sentence the clauses that do not apply to this machine."""

from __future__ import annotations

import re

BETWEEN_CLAUSES = r"(; |\. )(?![^()]*\))"


def clauses_without(text: str, foreign: str) -> str:
    """A text without the remarks and clauses that contain certain words.

    >>> clauses_without("Start it (`sudo x`); see /etc/x. Else install y (or z)", r"sudo|/etc/")
    'Start it. Else install y (or z)'
    >>> clauses_without("See /etc/x; then install y", r"sudo|/etc/")
    'Then install y'
    """

    def unless_foreign(remark: re.Match[str]) -> str:
        """The remark in parentheses; "" if it contains one of the words."""
        is_foreign = re.search(foreign, remark[0])
        return "" if is_foreign else remark[0]

    without_remarks = re.sub(r" \([^()]*\)", unless_foreign, text)
    # Pairs of a punctuation mark and the clause after it; the first clause has no mark.
    parts = ["", *re.split(BETWEEN_CLAUSES, without_remarks)]
    marks = parts[::2]
    clauses = parts[1::2]
    remaining = ""
    for mark, clause in zip(marks, clauses, strict=True):
        if not re.search(foreign, clause):
            remaining += mark + clause
    without_mark = re.sub(r"^(?:; |\. )", "", remaining)
    if without_mark == remaining:
        return remaining
    # The first clause was removed, so the next one begins the sentence.
    return without_mark[:1].upper() + without_mark[1:]
