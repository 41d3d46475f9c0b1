"""YAML, and JSON with or without comments, with the places of their values.

ruamel.yaml says where a value stands (its nodes have marks); JSON is YAML once Python's own
decoder has read it. Comments and a comma before a closing bracket are blanked out of JSON first,
so that places stay. The home of `ruamel.yaml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import JSONDecodeError
from typing import Any

from gpusetup.configs.settings import Path, Setting, child_path
from gpusetup.errors import BadInput

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
    yield from read_yaml(text, name)


def read_yaml(text: str, name: str) -> Iterator[Setting]:
    """Every node with its place, in order; `BadInput` names the place that is no YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="rt", pure=True)
    yaml.composer.warn_double_anchors = False
    try:
        root = yaml.compose(text)
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise BadInput(_where(name, mark, str(problem.problem or "not YAML"))) from problem
    except (YAMLError, ValueError) as problem:
        raise BadInput(f"{name}: not YAML: {' '.join(str(problem).split())[:200]}") from problem
    found = list(_Walk(text, name).settings(root, ())) if root else []
    yield from found if len(found) > 1 or (found and found[0].text) else ()


def _where(name: str, mark: Any, what: str) -> str:
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    tab = (
        "a tab where YAML takes only blanks"
        if "\\t" in what
        else " ".join(what.split()).removeprefix("but ")
    )
    return f"{name}{place}: {tab}"


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    """The nodes in a map or list, with their keys (their place in a list)."""
    kind = KINDS.get(type(node).__name__)
    yield from node.value if kind == "map" else enumerate(node.value if kind else ())


KINDS = {"MappingNode": "map", "SequenceNode": "list"}


class _Walk:
    """A file's nodes: what has an anchor is shared, with all that is in it."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.visited = text, name, set[int]()

    def settings(
        self, node: Any, path: Path, key: Any = None, shared: bool = False, flow: bool = False
    ) -> Iterator[Setting]:
        is_alias, start, end = id(node) in self.visited, node.start_mark.index, node.end_mark.index
        self.visited.add(id(node))
        shared = shared or bool(node.anchor)
        kind = KINDS.get(type(node).__name__, "scalar")
        block = getattr(node, "style", None) in ("|", ">")
        text = str(node.value) if block else self.text[start:end]  # a block by what it means
        yield Setting(
            path=path,
            kind="alias" if is_alias else kind,  # type: ignore[arg-type]
            text=text if kind == "scalar" else "",
            start=start,
            end=end,
            line=(key or node).start_mark.line + 1,
            key_start=key and key.start_mark.index,
            shared=shared,
            flow=flow,
        )
        key_lines: dict[str, int] = {}
        for index, (key, inner) in enumerate(() if is_alias else _children(node)):
            word = key if kind == "list" else self.word(key, key_lines, index)
            key_node = key if isinstance(word, str) and type(key).__name__ == "ScalarNode" else None
            place = child_path(path, word)
            yield from self.settings(inner, place, key_node, shared, bool(node.flow_style))

    def word(self, key: Any, key_lines: dict[str, int], index: int) -> str:
        """The word of a key; no word appears twice."""
        if type(key).__name__ != "ScalarNode":
            return f"?{index}"
        word = str(key.value)
        if word == "<<":
            word = f"<<{sum(one.startswith('<<') for one in key_lines)}"
        if word in key_lines:
            raise BadInput(
                _where(self.name, key.start_mark, f"the key {word!r} is there twice"),
                hint=f"it was in line {key_lines[word]} already; keep one of them",
            )
        key_lines[word] = key.start_mark.line + 1
        return word
