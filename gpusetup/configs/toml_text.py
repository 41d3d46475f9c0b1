"""TOML with the lines of its values, and the places of plain ones (the decoder keeps none)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from gpusetup.configs.settings import Path, Setting, below
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
    for path, value in _inside(values, ()):
        words = [part for part in path if isinstance(part, str)]
        around = (".".join(words[:depth]) for depth in range(len(words), 0, -1))
        line, start, end = next((places[name] for name in around if name in places), (1, 0, 0))
        kind = "map" if isinstance(value, dict) else "list" if isinstance(value, list) else "scalar"
        said = str(value).lower() if isinstance(value, bool) else str(value)
        if kind != "scalar" or said != text[start:end]:
            start = end = 0  # it has no place, or only looks like the line of one
        said = said if kind == "scalar" else ""
        yield Setting(path=path, kind=kind, text=said, start=start, end=end, line=line)  # type: ignore[arg-type]


def _inside(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, value
    inner = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inner:
        yield from _inside(one, below(path, key))


def _places(text: str) -> dict[str, Place]:
    """Dotted name -> its line and place, of what stands at the start of one."""
    found: dict[str, Place] = {}
    table, at = "", 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        head, key = TABLE.match(line.rstrip()), KEY.match(line.rstrip())
        if head:
            table = re.sub(r"[\s\"']", "", head[1]) + "."
            found[table[:-1]] = (number, 0, 0)
        elif key:
            word = table + re.sub(r"[\s\"']", "", key[1])
            value = VALUE.match(line, key.start(2)) if key[2] and word not in found else None
            found[word] = (number, *((at + end for end in value.span(1)) if value else (0, 0)))
        at += len(line)
    return found
