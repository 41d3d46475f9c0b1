"""TOML with the lines of its values, and the places of plain ones (the decoder keeps none)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from gpusetup.configs.settings import Path, Setting, child_path
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
        words = [part for part in path if isinstance(part, str)]
        parents = (".".join(words[:depth]) for depth in range(len(words), 0, -1))
        line, start, end = next((places[name] for name in parents if name in places), (1, 0, 0))
        kind = "map" if isinstance(value, dict) else "list" if isinstance(value, list) else "scalar"
        text_of_value = str(value).lower() if isinstance(value, bool) else str(value)
        if kind != "scalar" or text_of_value != text[start:end]:
            start = end = 0  # it has no place, or only looks like the line of one
        text_of_value = text_of_value if kind == "scalar" else ""
        yield Setting(path=path, kind=kind, text=text_of_value, start=start, end=end, line=line)  # type: ignore[arg-type]


def _children(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, value
    inner = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inner:
        yield from _children(one, child_path(path, key))


def _places(text: str) -> dict[str, Place]:
    """Dotted name -> its line and place, of what stands at the start of one."""
    found: dict[str, Place] = {}
    table, offset = "", 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        table_line, assignment = TABLE.match(line.rstrip()), KEY.match(line.rstrip())
        if table_line:
            table = re.sub(r"[\s\"']", "", table_line[1]) + "."
            found[table[:-1]] = (number, 0, 0)
        elif assignment:
            word = table + re.sub(r"[\s\"']", "", assignment[1])
            is_plain = assignment[2] and word not in found
            value = VALUE.match(line, assignment.start(2)) if is_plain else None
            found[word] = (number, *((offset + end for end in value.span(1)) if value else (0, 0)))
        offset += len(line)
    return found
