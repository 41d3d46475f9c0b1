"""Reads TOML with the line of each value and the position of plain values, neither of which tomllib
keeps."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from gpusetup.configs.settings import Kind, Path, Setting, child_path
from gpusetup.errors import BadInput

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
KEY = re.compile(r"""\s*([\w.\"'-]+)\s*=\s*((?:"[^"\\]*"|'[^']*'|[^\s#"'\[{]+)\s*(?:#.*)?$)?""")
VALUE = re.compile(r"""["']?([^"'#]*[^"'#\s])""")
Spot = tuple[int, int, int]
"""The line of a name, and the positions at which its value starts and ends (both 0 if the value is
not plain)."""


def read_toml(text: str, name: str) -> Iterator[Setting]:
    """The values in a TOML file with their lines, and their positions if they are plain; BadInput
    if the file is invalid."""
    try:
        values = tomllib.loads(text)
    except ValueError as problem:  # also raised for a number with too many digits
        raise BadInput(f"{name}: not TOML: {problem}") from problem
    spots = _spots(text)
    for path, value in _children(values, ()):
        kind: Kind = "scalar"
        if isinstance(value, (dict, list)):
            kind = "map" if isinstance(value, dict) else "list"
        value_text = str(value) if kind == "scalar" else ""
        if isinstance(value, bool):
            value_text = value_text.lower()
        # If the position is unknown, take the line of the nearest table or key above.
        words = [part for part in path if isinstance(part, str)]
        names = [".".join(words[:depth]) for depth in range(len(words), 0, -1)]
        line, start, end = next((spots[name] for name in names if name in spots), (1, 0, 0))
        # Drop the position if it is unknown, or if the text there is not this value.
        if kind != "scalar" or value_text != text[start:end]:
            start, end = 0, 0
        yield Setting(path=path, kind=kind, text=value_text, start=start, end=end, line=line)


def _children(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """A value with its path, followed by all values inside it."""
    yield path, value
    children: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, (dict, list)):
        children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield from _children(child, child_path(path, key))


def _spots(text: str) -> dict[str, Spot]:
    """Dotted name of each table or key in the text -> its line and the position of its value (0 and
    0 if unknown)."""
    spots: dict[str, Spot] = {}
    table = ""
    offset = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        table_line = TABLE.match(line.rstrip())
        assignment = KEY.match(line.rstrip())
        if table_line:
            name = _bare_name(table_line[1])
            spots[name] = (number, 0, 0)
            table = f"{name}."
        elif assignment:
            name = table + _bare_name(assignment[1])
            # A name that occurs twice is in a list of tables, so its position is ambiguous.
            is_plain = assignment[2] and name not in spots
            value = VALUE.match(line, assignment.start(2)) if is_plain else None
            start, end = value.span(1) if value else (-offset, -offset)
            spots[name] = (number, offset + start, offset + end)
        offset += len(line)
    return spots


def _bare_name(text: str) -> str:
    """A dotted name without spaces and quotes."""
    return re.sub(r"[\s\"']", "", text)
