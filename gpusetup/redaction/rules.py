"""A rule: a pattern, and what stands there instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

Found = re.Match[str]
Rule = tuple[str, str | Callable[[Found], str]]
compiled = cache(re.compile)
"""When it is first tried."""


def applied(rules: Iterable[Rule], text: str) -> str:
    """What is left of a text after the rules, in their order.

    >>> applied((("a+", "b"), ("bb", lambda found: found[0].upper())), "caab")
    'cBB'
    """
    for pattern, instead in rules:
        text = compiled(pattern).sub(instead, text)
    return text
