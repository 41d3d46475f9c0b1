"""JSON, with or without comments, and the places of its values (the standard decoder keeps none).

`//`, `/* */` and a comma before a closing bracket are blanked out first, so that places stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import JSONDecodeError

from gpusetup.configs.settings import Path, Setting
from gpusetup.errors import BadInput

BLANK = re.compile(r"[ \t\r\n]*")
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null')


def read_json(text: str, name: str) -> Iterator[Setting]:
    """Every value with its place, in order; `BadInput` names the place that is no JSON."""
    text = without_comments(text)
    try:
        json.loads(text)
    except JSONDecodeError as problem:
        place = f"line {problem.lineno}, column {problem.colno}"
        raise BadInput(f"{name}, {place}: not JSON: {problem.msg}") from problem
    except RecursionError as problem:
        raise BadInput(f"{name}, line {_deep_line(text)}: nested too deeply") from problem
    yield from _Scan(text, name).all()


COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
LAST_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=[ \t\r\n]*[\]}])')


def without_comments(text: str) -> str:
    """Blanks in place of comments and of a last comma; strings stay.

    >>> without_comments('{"a": "//", } // b')
    '{"a": "//"  }     '
    """
    text = COMMENT.sub(_blanked, text) if "/" in text else text
    return LAST_COMMA.sub(_blanked, text)


def _blanked(found: re.Match[str]) -> str:
    whole = found[0]
    return whole if whole.startswith('"') else re.sub(r"[^\r\n]", " ", whole)


MOST_DEPTH = 64
BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def _deep_line(text: str) -> int:
    """The line in which brackets stand deeper than is read."""
    depth = 0
    for found in BRACKET.finditer(text):
        depth += found[0] in "[{"
        depth -= found[0] in "]}"
        if depth > MOST_DEPTH:
            return text.count("\n", 0, found.start()) + 1
    return 1


class _Scan:
    """Walks text that is known to be JSON."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.at = text, name, 0

    def all(self) -> Iterator[Setting]:
        yield from self._value((), None)

    def _blank(self) -> str:
        found = BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]

    def _line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def _value(self, path: Path, key: int | None) -> Iterator[Setting]:
        mark = self._blank()
        if len(path) > MOST_DEPTH:
            raise BadInput(f"{self.name}, line {self._line()}: nested too deeply")
        if mark == "{":
            yield self._opened(path, key, "map")
            yield from self._members(path)
        elif mark == "[":
            yield self._opened(path, key, "list")
            yield from self._items(path)
        else:
            start, line = self.at, self._line()
            text = self._word()
            yield Setting(
                document=0, path=path, kind="scalar", text=text, start=start, end=self.at,
                line=line, key_start=key,
            )  # fmt: skip

    def _opened(self, path: Path, key: int | None, kind: str) -> Setting:
        start, line = self.at, self._line()
        self.at += 1
        return Setting(
            document=0, path=path, kind=kind, text="", start=start, end=start + 1, line=line,  # type: ignore[arg-type]
            key_start=key,
        )  # fmt: skip

    def _word(self) -> str:
        found = WORD.match(self.text, self.at)
        if found is None:  # NaN and Infinity, which only Python's own decoder takes
            raise BadInput(f"{self.name}, line {self._line()}: not JSON: no such value")
        self.at = found.end()
        return found[0]

    def _members(self, path: Path) -> Iterator[Setting]:
        names: set[str] = set()
        while self._blank() != "}":
            key, line = self.at, self._line()
            word = str(json.loads(self._word()))
            if word in names:
                raise BadInput(f"{self.name}, line {line}: the key {word!r} stands twice")
            names.add(word)
            self._blank()
            self.at += 1  # the colon
            yield from self._value((*path, word), key)
            self._comma()
        self.at += 1

    def _items(self, path: Path) -> Iterator[Setting]:
        index = 0
        while self._blank() != "]":
            yield from self._value((*path, index), None)
            index += 1
            self._comma()
        self.at += 1

    def _comma(self) -> None:
        if self._blank() == ",":
            self.at += 1
