"""Reads TOML files as data."""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parse_toml(text: str) -> dict[str, Any]:
    """The values in a TOML document. Raises ValueError if it is invalid."""
    # tomllib takes a time that grows with the square of the parts of a dotted key.
    if re.search(r"(?:[\w-]{1,60}\s?\.\s?){200}", text):
        raise ValueError("a key has too many parts")
    try:
        return dict(tomllib.loads(text))
    except RecursionError as problem:
        # Thousands of nested brackets exceed Python's recursion limit, so count such a file as
        # invalid. A number of more than 4,300 digits is a ValueError by itself.
        raise ValueError("nested too deeply") from problem
