"""Reads TOML with the line of each value and the position of plain values, neither of which tomllib
keeps."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
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
        line, start, end = _nearest_spot(path, spots)
        kind = _kind(value)
        value_text = _spelled(value) if kind == "scalar" else ""
        # Drop the position if it is unknown, or if the text there is not this value.
        if kind != "scalar" or value_text != text[start:end]:
            start, end = 0, 0
        yield Setting(
            path=path,
            kind=kind,
            text=value_text,
            start=start,
            end=end,
            line=line,
        )


def _kind(value: Any) -> Kind:
    """Whether a decoded value is a map, a list or a scalar."""
    if isinstance(value, dict):
        return "map"
    return "list" if isinstance(value, list) else "scalar"


def _spelled(value: Any) -> str:
    """A plain value as TOML writes it, with `true` and `false` in lower case."""
    text = str(value)
    if isinstance(value, bool):
        return text.lower()
    return text


def _nearest_spot(path: Path, spots: Mapping[str, Spot]) -> Spot:
    """The line and position of a value; if unknown, the line of the nearest table or key above it
    and no position."""
    words = [part for part in path if isinstance(part, str)]
    for depth in range(len(words), 0, -1):
        name = ".".join(words[:depth])
        spot = spots.get(name)
        if spot is not None:
            return spot
    return (1, 0, 0)


def _children(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """A value with its path, followed by all values inside it."""
    yield path, value
    children: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        path_of_child = child_path(path, key)
        yield from _children(child, path_of_child)


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
            spots[name] = (number, 0, 0)
            if value:
                spots[name] = (number, offset + value.start(1), offset + value.end(1))
        offset += len(line)
    return spots


def _bare_name(text: str) -> str:
    """A dotted name without spaces and quotes."""
    return re.sub(r"[\s\"']", "", text)
