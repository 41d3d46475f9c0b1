"""Lengths of time as people write them."""

from __future__ import annotations

import re

UNITS = {
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
}


def seconds_in(text: str) -> float:
    """The seconds of a text, without a unit seconds; ValueError for any other text.

    >>> seconds_in("30"), seconds_in("500ms"), seconds_in("1,5 min"), seconds_in("10 s")
    (30.0, 0.5, 90.0, 10.0)
    """
    found = re.fullmatch(r"([+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+))\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in UNITS:
        raise ValueError(f"{text!r} is no length of time")
    return float(found[1].replace(",", ".")) * UNITS[found[2]]
