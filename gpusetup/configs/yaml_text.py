"""Reads YAML, and JSON as a kind of YAML, with the positions of the values.

ruamel.yaml's nodes contain the position of each value. This is the only module that imports
`ruamel.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any

from gpusetup.configs.settings import Kind, Path, Setting
from gpusetup.errors import BadInput

LONGEST_REASON = 200
"""The number of characters of ruamel.yaml's message to show; it may quote a long text."""
MOST_DEPTH = 64
"""The deepest nesting that is read. No training config comes close, but a malicious file could
exhaust Python's stack."""


def read_yaml(text: str, name: str) -> Iterator[Setting]:
    """The values of a YAML file in order, with positions; BadInput names the line of an error, and
    RecursionError tells that the file is nested too deeply."""
    # Imported on use, because most commands read no YAML.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="rt", pure=True)
    # A config may define an anchor again, about which ruamel.yaml would print a warning.
    yaml.composer.warn_double_anchors = False
    try:
        root = yaml.compose(text)
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise BadInput(_where(name, mark, str(problem.problem or "not YAML"))) from problem
    except (YAMLError, ValueError) as problem:
        # ruamel.yaml's messages have several lines.
        reason = " ".join(str(problem).split())
        raise BadInput(f"{name}: not YAML: {reason[:LONGEST_REASON]}") from problem
    if root is None:
        return
    settings = list(_YamlWalk(text, name).settings(root))
    # An empty document is a single scalar without text.
    if len(settings) > 1 or settings[0].text:
        yield from settings


def yaml_text(values: Mapping[str, Any]) -> str:
    """Values as block YAML.

    >>> print(yaml_text({"model": {"path": "a/b", "tied": True}, "note": "yes"}), end="")
    model:
      path: a/b
      tied: true
    note: 'yes'
    """
    from ruamel.yaml import YAML

    # YAML 1.1 reads more words as switches (`yes`), so a text that is one of them gets quotes.
    yaml = YAML()
    yaml.version = (1, 1)
    text = StringIO()
    yaml.dump(values, text)
    # Leave out the first lines, `%YAML 1.1` and `---`.
    return text.getvalue().partition("---\n")[2]


def _where(name: str, mark: Any, reason: str) -> str:
    """An error message with the file's name and, if known, the line and column of the mark."""
    position = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    # ruamel.yaml's problem continues a sentence: "but found another document".
    problem = " ".join(reason.split()).removeprefix("but ")
    return f"{name}{position}: {problem}"


KINDS: Mapping[str, Kind] = {"MappingNode": "map", "SequenceNode": "list"}
"""Class name of a ruamel.yaml node -> kind of setting; all other nodes are scalars."""


class _YamlWalk:
    """Collects the settings of one YAML file from its nodes. A node with an anchor, and everything
    inside it, counts as shared."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.visited = set[int]()

    def settings(
        self, node: Any, path: Path = (), key: Any = None, *, shared: bool = False,
        flow: bool = False,
    ) -> Iterator[Setting]:  # fmt: skip
        """A node as a setting, followed by the nodes inside it; an alias is not followed.

        `key`: the node of the setting's key; None for a list item and for the whole file. `shared`
        and `flow`: whether a map or list around the setting has an anchor, or is in `{...}` or
        `[...]`.
        """
        if len(path) > MOST_DEPTH:
            raise RecursionError
        # For an alias, ruamel.yaml gives the anchor's node again.
        is_alias = id(node) in self.visited
        self.visited.add(id(node))
        kind = KINDS.get(type(node).__name__, "scalar")
        is_shared = shared or bool(node.anchor)
        start, end = node.start_mark.index, node.end_mark.index
        text = self.text[start:end] if kind == "scalar" else ""
        # For a block of text (`|`, `>`) use its value, not the indented lines.
        if kind == "scalar" and getattr(node, "style", None) in ("|", ">"):
            text = str(node.value)
        yield Setting(
            path=path,
            kind="alias" if is_alias else kind,
            text=text,
            start=start,
            end=end,
            line=(key or node).start_mark.line + 1,
            key_start=key and key.start_mark.index,
            shared=is_shared,
            flow=flow,
        )
        if is_alias or kind == "scalar":
            return
        key_lines: dict[str, int] = {}
        # A map has pairs of a key's node and a value's node, a list has only the values.
        children = node.value if kind == "map" else [(None, child) for child in node.value]
        for index, (child_key, child) in enumerate(children):
            word = index if kind == "list" else self.key_text(child_key, key_lines, index)
            # A new line can only be added below a key that is a scalar.
            if type(child_key).__name__ != "ScalarNode":
                child_key = None
            yield from self.settings(
                child, (*path, word), child_key, shared=is_shared, flow=bool(node.flow_style)
            )

    def key_text(self, key: Any, key_lines: dict[str, int], index: int) -> str:
        """The text of a map's key; BadInput if the same map already has the key. A key that is not
        a scalar gets a made-up name."""
        if type(key).__name__ != "ScalarNode":
            return f"?{index}"
        word = str(key.value)
        if word == "<<":
            # A map may contain several merges (`<<`), which do not count as repeated keys.
            word = f"<<{sum(name.startswith('<<') for name in key_lines)}"
        if word in key_lines:
            raise BadInput(
                _where(self.name, key.start_mark, f"the key {word!r} appears twice"),
                hint=f"it was in line {key_lines[word]} already; keep one of them",
            )
        key_lines[word] = key.start_mark.line + 1
        return word
