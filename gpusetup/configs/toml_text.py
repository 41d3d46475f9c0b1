"""TOML with the lines of its values, and the places of plain ones (the decoder keeps none)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gpusetup.configs.settings import Path, Setting
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_DEPTH = 64
TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
KEY = re.compile(r"""\s*([\w.\"'-]+)\s*=\s*((?:"[^"\\]*"|'[^']*'|[^\s#"'\[{]+)\s*(?:#.*)?$)?""")
VALUE = re.compile(r"""["']?([^"'#]*[^"'#\s])""")
Place = tuple[int, int, int]
"""The line of a name, and where its value stands if it is a plain one; 0 and 0 else."""


def read_toml(text: str, name: str) -> Iterator[Setting]:
    """Every value with its line; `BadInput` names the place that is no TOML."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"{name}: not TOML: {problem}") from problem
    except (RecursionError, ValueError) as problem:
        raise BadInput(f"{name}: nested too deeply, or a number too long for TOML") from problem
    for one in _settings(values, (), _places(text)):
        if len(one.path) > MOST_DEPTH:
            raise BadInput(f"{name}, line {one.line}: nested too deeply")
        # What is no plain value, or only looks like the line of one, has no place.
        placed = one.kind == "scalar" and one.end and text[one.start : one.end] == one.text
        yield one if placed else replace(one, start=0, end=0)


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


def _settings(value: Any, path: Path, places: Mapping[str, Place]) -> Iterator[Setting]:
    words = [part for part in path if isinstance(part, str)]
    around = (".".join(words[:depth]) for depth in range(len(words), 0, -1))
    line, start, end = next((places[name] for name in around if name in places), (1, 0, 0))
    kind = "map" if isinstance(value, dict) else "list" if isinstance(value, list) else "scalar"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    yield Setting(
        path=path, kind=kind, line=line, start=start, end=end,  # type: ignore[arg-type]
        text=text if kind == "scalar" else "",
    )  # fmt: skip
    inner = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inner:
        yield from _settings(one, (*path, key), places)
