"""An answer that fits: long lists and texts are cut, and where they were is said."""

from __future__ import annotations

import json
from typing import Any

LIMIT = 24_000
"""Characters of one answer's JSON: some 6,000 tokens."""
STEPS = ((200, 4000), (60, 2000), (25, 1000), (10, 500), (4, 240), (2, 120))
"""Most items of a list or mapping, most characters of a text; the first step that fits is taken."""
PLACES_SHOWN = 12


def bounded(document: dict[str, Any], limit: int = LIMIT) -> dict[str, Any]:
    """The document in at most `limit` characters of JSON; `cut` says where something is missing.

    >>> bounded({"cause": "ok", "rows": list(range(99))}, 60)
    {'cause': 'ok', 'cut': ['everything but the plain fields']}
    """
    for most, longest in STEPS:
        places: list[str] = []
        small = _cut(document, most, longest, "", places)
        if places:
            small["cut"] = _said(places)
        if len(json.dumps(small)) <= limit:
            return dict(small)
    plain = {key: value for key, value in small.items() if not isinstance(value, (dict, list))}
    small = {**plain, "cut": ["everything but the plain fields"]}
    return small if len(json.dumps(small)) <= limit else {"cut": ["everything: it is too long"]}


def _said(places: list[str]) -> list[str]:
    shown = places[:PLACES_SHOWN]
    more = len(places) - len(shown)
    return [*shown, f"{more} more places"] if more else shown


def _cut(value: Any, most: int, longest: int, place: str, places: list[str]) -> Any:
    if isinstance(value, str) and len(value) > longest:
        places.append(f"{place}: {longest} of {len(value)} characters")
        return value[:longest]
    if isinstance(value, dict):
        kept = dict(list(value.items())[: max(most, 40)])
        _note(place, len(kept), len(value), "fields", places)
        return {k: _cut(v, most, longest, f"{place}.{k}"[-60:], places) for k, v in kept.items()}
    if isinstance(value, (list, tuple)):
        _note(place, min(most, len(value)), len(value), "items", places)
        inside = enumerate(value[:most])
        return [_cut(one, most, longest, f"{place}[{n}]"[-60:], places) for n, one in inside]
    return value


def _note(place: str, kept: int, all_of_it: int, what: str, places: list[str]) -> None:
    if kept < all_of_it:
        places.append(f"{place}: {kept} of {all_of_it} {what}")
