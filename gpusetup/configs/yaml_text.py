"""YAML, and JSON with or without comments, with the places of their values.

ruamel.yaml says where a value stands (its events have marks); JSON is YAML once Python's own
decoder has read it. Comments and a comma before a closing bracket are blanked out of JSON first,
so that places stay. The home of `ruamel.yaml`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from json.decoder import JSONDecodeError
from typing import Any

from gpusetup.configs.settings import Path, Setting
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace

MOST_DEPTH = 64
COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
LAST_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=[ \t\r\n]*[\]}])')


def without_comments(text: str) -> str:
    """Blanks in place of comments and of a last comma; strings stay.

    >>> without_comments('{"a": "//", } // b')
    '{"a": "//"  }     '
    """

    def blanked(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\r\n]", " ", found[0])

    return LAST_COMMA.sub(blanked, COMMENT.sub(blanked, text))


def read_json(text: str, name: str) -> Iterator[Setting]:
    """Every value with its place, in order; `BadInput` names the place that is no JSON."""

    def no_number(word: str) -> None:  # NaN and Infinity, which only Python's own decoder takes
        raise BadInput(f"{name}: not JSON: {word} is no value of it")

    text = without_comments(text)
    try:
        json.loads(text, parse_constant=no_number)
    except JSONDecodeError as problem:
        place = f"line {problem.lineno}, column {problem.colno}"
        raise BadInput(f"{name}, {place}: not JSON: {problem.msg}") from problem
    except RecursionError as problem:
        raise BadInput(f"{name}: nested too deeply") from problem
    yield from read_yaml(text, name)


def read_yaml(text: str, name: str) -> Iterator[Setting]:
    """Every node of every document, with its place, in order."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    events: deque[Any] = deque()
    depth = 0
    try:
        for event in YAML(typ="rt", pure=True).parse(text):
            kind = type(event).__name__
            depth += kind in STARTS
            depth -= kind in ENDS
            if depth > MOST_DEPTH + 1:  # the first has no name before it
                raise BadInput(_where(name, event.start_mark, "nested too deeply"))
            events.append(event)
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise BadInput(_where(name, mark, str(problem.problem or "not YAML"))) from problem
    except (YAMLError, ValueError) as problem:
        raise BadInput(f"{name}: not YAML: {' '.join(str(problem).split())[:200]}") from problem
    yield from _Walk(text, name, events).all()


STARTS = {"MappingStartEvent": "map", "SequenceStartEvent": "list"}
ENDS = ("MappingEndEvent", "SequenceEndEvent")


def _where(name: str, mark: Any, what: str) -> str:
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    tab = "a tab where YAML takes only blanks" if "\\t" in what else " ".join(what.split())
    return f"{name}{place}: {tab}"


class _Walk:
    """A file's events: what an alias points to is shared, with all that is in it."""

    def __init__(self, text: str, name: str, events: deque[Any]) -> None:
        self.text, self.name, self.events = text, name, events
        self.aliased = {one.anchor for one in events if type(one).__name__ == "AliasEvent"}
        self.anchors: dict[str, Setting] = {}
        self.document = -1

    def all(self) -> Iterator[Setting]:
        while self.events:
            kind = type(self.events[0]).__name__
            if kind == "DocumentStartEvent":
                self.document, self.anchors = self.document + 1, {}
            if kind in STARTS or kind in ("ScalarEvent", "AliasEvent"):
                found = list(self.node(()))  # an empty document is one empty word
                yield from found if len(found) > 1 or found[0].text or found[0].shared else ()
            else:
                self.events.popleft()

    def node(
        self, path: Path, key: Any = None, flow: bool = False, shared: bool = False
    ) -> Iterator[Setting]:
        event = self.events.popleft()
        kind = type(event).__name__
        shared = shared or event.anchor in self.aliased
        line, key_start = (key or event).start_mark.line + 1, key and key.start_mark.index
        start, end = event.start_mark.index, event.end_mark.index
        if kind == "AliasEvent":
            if event.anchor not in self.anchors:
                raise BadInput(_where(self.name, event.start_mark, "found undefined alias"))
            named = self.anchors[event.anchor]
            yield replace(named, path=path, kind="alias", line=line, key_start=key_start, flow=flow)
            return
        block = kind == "ScalarEvent" and event.style in ("|", ">")  # by what it means
        found = Setting(
            document=self.document,
            path=path,
            kind=STARTS.get(kind, "scalar"),  # type: ignore[arg-type]
            text="" if kind in STARTS else str(event.value) if block else self.text[start:end],
            start=start,
            end=end,
            line=line,
            key_start=key_start,
            shared=shared,
            flow=flow,
        )
        if event.anchor:
            self.anchors[event.anchor] = found
        yield found
        lines: dict[str, int] = {}
        index = 0
        while kind in STARTS and type(self.events[0]).__name__ not in ENDS:
            inner: Any = None
            word: str | int = index
            if kind == "MappingStartEvent":
                inner, word = self.key(lines, index)
            yield from self.node((*path, word), inner, bool(event.flow_style), shared)
            index += 1
        if kind in STARTS:
            self.events.popleft()

    def key(self, lines: dict[str, int], index: int) -> tuple[Any, str]:
        """The event of a key, where it is a word, and its word; no word appears twice."""
        event = self.events[0]
        if type(event).__name__ != "ScalarEvent":
            list(self.node(()))
            return None, f"?{index}"
        self.events.popleft()
        word = str(event.value)
        if word == "<<":
            word = f"<<{sum(one.startswith('<<') for one in lines)}"
        if word in lines:
            raise BadInput(
                _where(self.name, event.start_mark, f"the key {word!r} appears twice"),
                hint=f"line {lines[word]} has it too: keep one of them",
            )
        lines[word] = event.start_mark.line + 1
        return event, word
