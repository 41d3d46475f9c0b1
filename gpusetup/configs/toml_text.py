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

TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


def read_toml(text: str, name: str) -> Iterator[Setting]:
    """Every value with its line; `BadInput` names the place that is no TOML."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"{name}: not TOML: {problem}") from problem
    except (RecursionError, ValueError) as problem:
        raise BadInput(f"{name}: nested too deeply, or a number too long for TOML") from problem
    places = _places(text)
    for one in _settings(values, (), dict(_lines(text)), name):
        start, end = places.get(one.path, (0, 0))
        placed = one.kind == "scalar" and text[start:end] == one.text
        yield replace(one, start=start, end=end) if placed and end else one


VALUE = re.compile(r"""\s*([\w."'-]+)\s*=\s*(?:"([^"\\]*)"|'([^']*)'|([^\s#"'\[{]+))\s*(?:#.*)?$""")


def _places(text: str) -> dict[Path, tuple[int, int]]:
    """Where plain values stand that are on a line of their own, of names that stand once."""
    found: dict[Path, list[tuple[int, int]]] = {}
    table, at = "", 0
    for line in text.splitlines(keepends=True):
        head, value = TABLE.match(line.rstrip()), VALUE.match(line.rstrip())
        if head:
            table = _bare(head[1]) + "."
        elif value:
            path: Path = tuple((table + _bare(value[1])).split("."))
            group = next(n for n in (2, 3, 4) if value[n] is not None)
            found.setdefault(path, []).append((at + value.start(group), at + value.end(group)))
        at += len(line)
    return {path: spans[0] for path, spans in found.items() if len(spans) == 1}


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Dotted name -> its line, of what stands at the start of one."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        head, key = TABLE.match(line), KEY.match(line)
        if head:
            table = _bare(head[1]) + "."
            yield table[:-1], number
        elif key:
            yield table + _bare(key[1]), number


def _bare(name: str) -> str:
    return re.sub(r"[\s\"']", "", name)


def _settings(value: Any, path: Path, lines: Mapping[str, int], name: str) -> Iterator[Setting]:
    line = _line(path, lines)
    if len(path) > MOST_DEPTH:
        raise BadInput(f"{name}, line {line}: nested too deeply")
    if isinstance(value, dict):
        yield _setting(path, "map", "", line)
        for key, inner in value.items():
            yield from _settings(inner, (*path, key), lines, name)
    elif isinstance(value, list):
        yield _setting(path, "list", "", line)
        for index, inner in enumerate(value):
            yield from _settings(inner, (*path, index), lines, name)
    else:
        yield _setting(path, "scalar", _text(value), line)


MOST_DEPTH = 64


def _line(path: Path, lines: Mapping[str, int]) -> int:
    """The line of a name, or of the nearest one around it."""
    words = [str(part) for part in path if isinstance(part, str)]
    while words and ".".join(words) not in lines:
        words.pop()
    return lines.get(".".join(words), 1)


def _setting(path: Path, kind: str, text: str, line: int) -> Setting:
    return Setting(document=0, path=path, kind=kind, text=text, start=0, end=0, line=line)  # type: ignore[arg-type]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
