"""One value that a tool takes: its schema, whether a given one is right, and what it should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.model.frozen import Frozen

LONGEST_WORD = 2000
MOST_WORDS = 50


class Field(Frozen):
    """One value that a tool takes."""

    kind: str
    """A key of `TYPES`."""
    what: str
    needed: bool = False
    longest: int = LONGEST_WORD
    choices: tuple[str, ...] = ()


TYPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "string": (str, "a text"),
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
    "strings": ((list, str), "a text, or a list of texts"),
}
"""The kind of a value -> its type, and what it is called."""


def property_of(field: Field) -> dict[str, Any]:
    if field.kind == "strings":
        text = {"type": "string", "maxLength": field.longest}
        both = {"type": ["array", "string"], "items": text, "maxItems": MOST_WORDS}
        return {**both, "maxLength": field.longest, "description": field.what}
    row: dict[str, Any] = {"type": field.kind, "description": field.what}
    if field.kind == "string":
        row["maxLength"] = field.longest
    return {**row, "enum": list(field.choices)} if field.choices else row


def wanted(value: object, field: Field) -> str:
    """What a value should be, after the word "is"."""
    if isinstance(value, list) and len(value) > MOST_WORDS:
        return f"a list of at most {MOST_WORDS} texts, and {len(value)} were given"
    texts = value if isinstance(value, list) else [value]
    longest = max((len(one) for one in texts if isinstance(one, str)), default=0)
    if longest > field.longest:
        return f"too long: {longest:,} characters, where {field.longest:,} are the most"
    choices = f", one of {', '.join(field.choices)}" if field.choices else ""
    return f"{TYPES[field.kind][1]}{choices}"


def as_asked(value: Any, field: Field) -> Any:
    """One text where several are taken is a list of it."""
    return [value] if field.kind == "strings" and isinstance(value, str) else value


def is_value(value: object, field: Field) -> bool:
    if not isinstance(value, TYPES[field.kind][0]):
        return False
    if isinstance(value, bool) and field.kind != "boolean":
        return False
    if isinstance(value, list):
        texts = all(isinstance(one, str) and len(one) <= field.longest for one in value)
        return texts and len(value) <= MOST_WORDS
    if isinstance(value, str):
        return len(value) <= field.longest and (not field.choices or value in field.choices)
    return True
