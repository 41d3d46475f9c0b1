"""Reads TOML files as data, and writes uv's settings as TOML."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def parse_toml(text: str) -> dict[str, Any]:
    """The values in a TOML document. Raises ValueError if it is invalid."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return dict(tomllib.loads(text))
    except RecursionError as problem:
        # Thousands of nested brackets exceed Python's recursion limit, so count such a file as
        # invalid.
        raise ValueError("nested too deeply") from problem


def toml_text(value: Any) -> str:
    """A value in TOML notation, on one line.

    >>> toml_text({"numpy": "disallow", "a b": [1, True]})
    '{ "numpy" = "disallow", "a b" = [1, true] }'
    """
    if isinstance(value, Mapping):
        pairs = [f"{json.dumps(name)} = {toml_text(item)}" for name, item in value.items()]
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_text, value)) + "]"
    if isinstance(value, (bool, int, str)):
        # JSON and TOML have the same notation for booleans, integers and strings.
        return json.dumps(value)
    # TOML has its own type for dates, but uv also reads them as text.
    return json.dumps(str(value))
