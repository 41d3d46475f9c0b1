"""Lengths of time as people write them."""

from __future__ import annotations

import re

UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds_in(text: str) -> float:
    """The seconds of a text, without a unit seconds; ValueError for any other text.

    >>> seconds_in("30"), seconds_in("500ms"), seconds_in("1,5 min"), seconds_in("10 s")
    (30.0, 0.5, 90.0, 10.0)
    """
    found = re.fullmatch(r"([+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+))\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in UNITS:
        raise ValueError(f"{text!r} is no length of time")
    return float(found[1].replace(",", ".")) * UNITS[found[2]]
