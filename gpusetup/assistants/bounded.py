"""An answer that fits: long lists and texts are cut, and it says so."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

LIMIT = 24_000
"""Characters of one answer's JSON: some 6,000 tokens."""
STEPS = (200, 60, 25, 10, 4, 2)
"""Most items of a list, and a twentieth of the most characters of a text; the first step that fits
is taken."""
MOST_FIELDS = 40


def bounded(document: dict[str, Any], limit: int = LIMIT) -> dict[str, Any]:
    """The document in at most `limit` characters of JSON; `cut` says what is missing.

    >>> bounded({"cause": "ok", "rows": list(range(999))}, 60)
    {'cut': 'everything: it is too long'}
    """
    if len(json.dumps(document)) <= limit:
        return document
    for most in STEPS:
        said = f"lists after {most} items, texts after {most * 20} characters"
        small = {**_cut(document, most), "cut": said}
        if len(json.dumps(small)) <= limit:
            return small
    return {"cut": "everything: it is too long"}


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, dict):
        fields = islice(value.items(), max(most, MOST_FIELDS))
        return {key: _cut(one, most) for key, one in fields}
    if isinstance(value, list | tuple):
        return [_cut(one, most) for one in value[:most]]
    return value[: most * 20] if isinstance(value, str) else value
