"""An answer that fits: long lists and texts are cut, and where they were is said."""

from __future__ import annotations

import json
from typing import Any

LIMIT = 24_000
"""Characters of one answer's JSON: some 6,000 tokens."""
STEPS = ((200, 4000), (60, 2000), (25, 1000), (10, 500), (4, 240), (2, 120))
"""Most items of a list, most characters of a text; the first step that fits is taken."""
MOST_FIELDS = 40
PLACES_SHOWN = 12


def bounded(document: dict[str, Any], limit: int = LIMIT) -> dict[str, Any]:
    """The document in at most `limit` characters of JSON; `cut` says where something is missing.

    >>> bounded({"cause": "ok", "rows": list(range(99))}, 60)
    {'cause': 'ok', 'cut': ['everything but the plain fields']}
    """
    for most, longest in STEPS:
        cut = _Cut(most, longest)
        small = cut.of(document, "")
        if cut.places:
            more = len(cut.places) - PLACES_SHOWN
            said = [f"{more} more places"] if more > 0 else []
            small["cut"] = [*cut.places[:PLACES_SHOWN], *said]
        if len(json.dumps(small)) <= limit:
            return dict(small)
    plain = {key: value for key, value in small.items() if not isinstance(value, dict | list)}
    small = {**plain, "cut": ["everything but the plain fields"]}
    return small if len(json.dumps(small)) <= limit else {"cut": ["everything: it is too long"]}


class _Cut:
    """Values that are cut at a step, and the places where."""

    def __init__(self, most: int, longest: int) -> None:
        self.most, self.longest = most, longest
        self.places: list[str] = []

    def of(self, value: Any, place: str) -> Any:
        if isinstance(value, str):
            return self._kept(value, self.longest, "characters", place)
        if isinstance(value, dict):
            fields = self._kept([*value.items()], max(self.most, MOST_FIELDS), "fields", place)
            return {key: self.of(one, f"{place}.{key}"[-60:]) for key, one in fields}
        if isinstance(value, list | tuple):
            items = enumerate(self._kept(value, self.most, "items", place))
            return [self.of(one, f"{place}[{number}]"[-60:]) for number, one in items]
        return value

    def _kept(self, value: Any, most: int, what: str, place: str) -> Any:
        if len(value) > most:
            self.places.append(f"{place}: {most} of {len(value)} {what}")
        return value[:most]
