"""TOML with the lines of its values, and the places of plain ones (the decoder keeps none)."""

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
Place = tuple[int, int, int]
"""The line of a name, and where its value stands if it is a plain one; 0 and 0 else."""


def read_toml(text: str, name: str) -> Iterator[Setting]:
    """Every value with its line; `BadInput` names the place that is no TOML."""
    try:
        values = tomllib.loads(text)
    except ValueError as problem:  # also a number too long for Python
        raise BadInput(f"{name}: not TOML: {problem}") from problem
    places = _places(text)
    for path, value in _children(values, ()):
        line, start, end = _nearest_place(path, places)
        kind: Kind = "scalar"
        if isinstance(value, dict):
            kind = "map"
        elif isinstance(value, list):
            kind = "list"
        value_text = ""
        if kind == "scalar":
            # TOML writes `true`, Python's `str` gives `True`.
            value_text = str(value).lower() if isinstance(value, bool) else str(value)
        if kind != "scalar" or value_text != text[start:end]:
            start = end = 0  # it has no place, or only looks like the line of one
        yield Setting(path=path, kind=kind, text=value_text, start=start, end=end, line=line)


def _nearest_place(path: Path, places: Mapping[str, Place]) -> Place:
    """The place of a value, else the line of the nearest table or key above it."""
    words = [part for part in path if isinstance(part, str)]
    for depth in range(len(words), 0, -1):
        place = places.get(".".join(words[:depth]))
        if place is not None:
            return place
    return (1, 0, 0)


def _children(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """A value with its path, then what stands in it."""
    yield path, value
    children: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from _children(child, child_path(path, key))


def _places(text: str) -> dict[str, Place]:
    """Dotted name -> its line and place, of what stands at the start of one."""
    places: dict[str, Place] = {}
    table, offset = "", 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        table_line, assignment = TABLE.match(line.rstrip()), KEY.match(line.rstrip())
        if table_line:
            name = re.sub(r"[\s\"']", "", table_line[1])
            places[name] = (number, 0, 0)
            table = f"{name}."
        elif assignment:
            name = table + re.sub(r"[\s\"']", "", assignment[1])
            # A name that comes twice is of a list of tables: which one is meant is not known.
            is_plain = assignment[2] and name not in places
            value = VALUE.match(line, assignment.start(2)) if is_plain else None
            start, end = (offset + value.start(1), offset + value.end(1)) if value else (0, 0)
            places[name] = (number, start, end)
        offset += len(line)
    return places
