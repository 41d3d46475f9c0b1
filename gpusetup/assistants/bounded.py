"""An answer that fits: long lists and texts are cut, and where they were is said."""

from __future__ import annotations

import json
from typing import Any

LIMIT = 24_000
"""Characters of one answer's JSON: some 6,000 tokens."""
STEPS = (200, 60, 25, 10, 4, 2)
"""Most items of a list, and a twentieth of the most characters of a text; the first step that fits
is taken."""
MOST_FIELDS = 40
PLACES_SHOWN = 12


def bounded(document: dict[str, Any], limit: int = LIMIT) -> dict[str, Any]:
    """The document in at most `limit` characters of JSON; `cut` says where something is missing.

    >>> bounded({"cause": "ok", "rows": list(range(99))}, 60)
    {'cause': 'ok', 'cut': ['everything but the plain fields']}
    """
    small: dict[str, Any] = document
    for most in STEPS:
        places: list[str] = []
        small = _cut(document, "", most, places)
        if places:
            more = ["and more places"] * (len(places) > PLACES_SHOWN)
            small["cut"] = places[:PLACES_SHOWN] + more
        if len(json.dumps(small)) <= limit:
            return small
    plain = {key: value for key, value in small.items() if not isinstance(value, dict | list)}
    small = {**plain, "cut": ["everything but the plain fields"]}
    return small if len(json.dumps(small)) <= limit else {"cut": ["everything: it is too long"]}


def _cut(value: Any, place: str, most: int, places: list[str]) -> Any:
    """The value with what the step leaves of it; where something is missing goes to `places`."""
    if not isinstance(value, str | dict | list | tuple):
        return value
    kinds = {str: ("characters", most * 20), dict: ("fields", max(most, MOST_FIELDS))}
    unit, room = kinds.get(type(value), ("items", most))
    if len(value) > room:
        places.append(f"{place}: {room} of {len(value)} {unit}")
    if isinstance(value, str):
        return value[:room]
    if isinstance(value, dict):
        fields = list(value.items())[:room]
        return {key: _cut(one, f"{place}.{key}"[-60:], most, places) for key, one in fields}
    items = enumerate(value[:room])
    return [_cut(one, f"{place}[{number}]"[-60:], most, places) for number, one in items]
