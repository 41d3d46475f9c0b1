"""A config as bytes with the places of its values: read, changed in place, proven.

Nothing is dumped: ruamel.yaml only says where a value stands (`compose()` gives marks), the new
value replaces the old text there, the result is read again and both trees are compared. What
cannot be changed like this is refused and stays as it was. The home of `ruamel.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

from gpusetup.configs.json_text import read_json
from gpusetup.configs.python_text import read_python
from gpusetup.configs.settings import Path, Setting, in_words, unquoted
from gpusetup.configs.toml_text import read_toml
from gpusetup.errors import BadInput
from gpusetup.model.frozen import Frozen

BOM = "\ufeff"
SIZE_LIMIT_BYTES = 1 << 20
MOST_DEPTH = 64
BARE = re.compile(r"[A-Za-z0-9_.+\-]+")
"""What a value may look like that is replaced: no quotes, tags, anchors or comments."""


class Config(Frozen):
    """A config file: its text, and every setting with its place."""

    name: str
    text: str
    format: Literal["yaml", "json", "toml", "python"]
    settings: tuple[Setting, ...]
    bom: bool = False
    newline: str = "\n"


class Edit(Frozen):
    """One change of the text. `path` is the setting that is changed, or added."""

    document: int
    path: Path
    start: int
    end: int
    text: str
    value: str
    """What the setting is then, as it is written."""


def read_config(raw: bytes, name: str) -> Config:
    """The settings of a YAML, JSON, TOML or Python file; `BadInput` names the place."""
    if len(raw) > SIZE_LIMIT_BYTES:
        raise BadInput(f"{name} has {len(raw):,} bytes: that is no training config")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        hint = "save it anew, as UTF-8"
        raise BadInput(f"{name}, line {line}: not UTF-8 text", hint=hint) from problem
    bom = text.startswith(BOM)
    text = text[1:] if bom else text
    kind = FORMATS.get(name.lower().rpartition(".")[2], "yaml")
    settings = tuple(READERS[kind](text, name))
    return Config(
        name=name,
        text=text,
        format=kind,  # type: ignore[arg-type]
        settings=settings,
        bom=bom,
        newline="\r\n" if "\r\n" in text else "\n",
    )


def written(config: Config, edits: Sequence[Edit]) -> bytes:
    """The bytes with the edits made; `BadInput` where anything else would change with them."""
    text = config.text
    for edit in sorted(edits, key=lambda one: (one.start, one.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    raw = ((BOM if config.bom else "") + text).encode()
    _proven(config, read_config(raw, config.name), edits)
    return raw


def _proven(before: Config, after: Config, edits: Sequence[Edit]) -> None:
    """The trees are the same, but for the settings that were meant."""
    meant = {(edit.document, edit.path): edit.value for edit in edits}
    old = {(one.document, one.path): _meaning(one) for one in before.settings}
    new = {(one.document, one.path): _meaning(one) for one in after.settings}
    for place, value in meant.items():
        if new.pop(place, None) != ("scalar", value):
            raise BadInput(f"{before.name}: {in_words(place[1])} cannot be changed in place")
        old.pop(place, None)
    if list(old.items()) != list(new.items()):
        raise BadInput(
            f"{before.name}: the change would reach further than the value itself",
            hint="an anchor, a tag or an unusual layout stands there: change it by hand",
        )


def _meaning(setting: Setting) -> tuple[str, ...]:
    return (setting.kind, setting.text) if setting.kind == "scalar" else (setting.kind,)


def change(config: Config, setting: Setting, value: str) -> Edit | None:
    """The edit that writes a value over a setting's; None where the place does not allow it."""
    if config.format == "toml" and not setting.end:
        return None  # no place is known of it
    bare = unquoted(setting.text)
    if setting.kind != "scalar" or setting.shared or not BARE.fullmatch(bare):
        return None
    spelled = _spelled(config, value, bare)
    if bare != setting.text:
        spelled = setting.text[0] + spelled.strip('"') + setting.text[0]
    return Edit(
        document=setting.document,
        path=setting.path,
        start=setting.start,
        end=setting.end,
        text=spelled,
        value=spelled,
    )


def _spelled(config: Config, value: str, like: str) -> str:
    """The new value as the old one was spelled: `True`, `yes`, `on`; quoted in JSON if it is text.

    >>> _spelled(Config(name="c", text="", format="yaml", settings=()), "true", "False")
    'True'
    """
    pairs = {"false": "true", "False": "True", "FALSE": "TRUE", "no": "yes", "No": "Yes"}
    pairs |= {"off": "on", "Off": "On", "n": "y", "N": "Y"}
    if value == "true" and like in pairs:
        return pairs[like]
    if value == "false" and like in pairs.values():
        return next(word for word, other in pairs.items() if other == like)
    if config.format in ("json", "python") and not re.fullmatch(
        r"-?\d+(\.\d+)?|[Tt]rue|[Ff]alse|null|None", value
    ):
        return f'"{value}"'
    return value


def addition(config: Config, beside: Setting, name: str, value: str) -> Edit | None:
    """The edit that adds a key on a line of its own below another; None where that has no place."""
    if beside.kind != "scalar" or beside.shared or beside.key_start is None:
        return None  # also of TOML, which has no places
    add = _json_line if config.format == "json" else _yaml_line
    place = add(config, beside, beside.key_start, name, value)
    if place is None:
        return None
    start, text = place
    return Edit(
        document=beside.document,
        path=(*beside.path[:-1], name),
        start=start,
        end=start,
        text=text,
        value=value,
    )


def _yaml_line(
    config: Config, beside: Setting, key: int, name: str, value: str
) -> tuple[int, str] | None:
    line = config.text.rfind("\n", 0, key) + 1
    end = config.text.find("\n", beside.end)
    rest = config.text[beside.end : len(config.text) if end < 0 else end].rstrip("\r")
    if beside.flow or "\n" in config.text[key : beside.end]:
        return None
    if rest.strip() and not rest.lstrip().startswith("#"):
        return None
    text = f"{' ' * (key - line)}{name}: {value}"
    if end < 0:
        return len(config.text), config.newline + text
    return end + 1, text + config.newline


def _json_line(
    config: Config, beside: Setting, key: int, name: str, value: str
) -> tuple[int, str] | None:
    line = config.text.rfind("\n", 0, key) + 1
    indent = config.text[line:key]
    gap = config.newline + indent if not indent.strip() and line else " "
    return beside.end, f',{gap}"{name}": {value}'


# --- YAML ---------------------------------------------------------------------------------------


def read_yaml(text: str, name: str) -> Iterator[Setting]:
    """Every node of every document, with its place, in order."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        documents = list(_reader().compose_all(text))
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise BadInput(_where(name, mark, str(problem.problem or "not YAML"))) from problem
    except (YAMLError, ValueError) as problem:
        raise BadInput(f"{name}: not YAML: {' '.join(str(problem).split())[:200]}") from problem
    for number, node in enumerate(documents):
        if node is not None:
            yield from _Walk(text, name, number).all(node)


def _reader() -> Any:
    """A reader of one text, which stops at the first node past the depth that is read: composing
    thousands of open brackets takes seconds."""
    from ruamel.yaml import YAML

    reader = YAML(typ="rt", pure=True)
    reader.Composer = _shallow()
    return reader


@cache
def _shallow() -> Any:
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.error import MarkedYAMLError

    class Shallow(Composer):
        collections = 0

        def compose_sequence_node(self, anchor: Any) -> Any:
            return self.one_deeper(super().compose_sequence_node, anchor)

        def compose_mapping_node(self, anchor: Any) -> Any:
            return self.one_deeper(super().compose_mapping_node, anchor)

        def one_deeper(self, compose: Callable[[Any], Any], anchor: Any) -> Any:
            self.collections += 1
            if self.collections > MOST_DEPTH + 1:  # the first has no name before it
                mark = self.parser.peek_event().start_mark
                raise MarkedYAMLError(problem="nested too deeply", problem_mark=mark)
            node = compose(anchor)
            self.collections -= 1
            return node

    return Shallow


def _where(name: str, mark: Any, what: str) -> str:
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    tab = "a tab where YAML takes only blanks" if "\\t" in what else " ".join(what.split())
    return f"{name}{place}: {tab}"


class _Walk:
    """One document: what an alias points to is shared, with all that is in it, and read once."""

    def __init__(self, text: str, name: str, document: int) -> None:
        self.text, self.name, self.document = text, name, document
        self.seen: set[int] = set()
        self.aliased: set[int] = set()

    def all(self, root: Any) -> Iterator[Setting]:
        self.aliased = set(_twice(root))
        yield from self.node(root, ())

    def node(
        self, node: Any, path: Path, key: Any = None, flow: bool = False, shared: bool = False
    ) -> Iterator[Setting]:
        if len(path) > MOST_DEPTH:
            raise BadInput(_where(self.name, node.start_mark, "nested too deeply"))
        alias = id(node) in self.seen
        self.seen.add(id(node))
        shared = shared or id(node) in self.aliased
        yield self._setting(node, path, key, flow, shared, alias)
        if alias:
            return
        if node.id == "mapping":
            yield from self._mapping(node, path, shared)
        elif node.id == "sequence":
            for index, inner in enumerate(node.value):
                yield from self.node(inner, (*path, index), None, bool(node.flow_style), shared)

    def _mapping(self, node: Any, path: Path, shared: bool) -> Iterator[Setting]:
        lines: dict[str, int] = {}
        for index, (key, value) in enumerate(node.value):
            word = key.value if key.id == "scalar" else f"?{index}"
            if word == "<<":
                word = f"<<{sum(one.startswith('<<') for one in lines)}"
            if word in lines:
                raise BadInput(
                    _where(self.name, key.start_mark, f"the key {word!r} stands twice"),
                    hint=f"it stood in line {lines[word]} already; keep one of them",
                )
            lines[word] = key.start_mark.line + 1
            yield from self.node(value, (*path, word), key, bool(node.flow_style), shared)

    def _setting(
        self, node: Any, path: Path, key: Any, flow: bool, shared: bool, alias: bool
    ) -> Setting:
        start, end = node.start_mark.index, node.end_mark.index
        kind = {"mapping": "map", "sequence": "list"}.get(node.id, "scalar")
        return Setting(
            document=self.document,
            path=path,
            kind="alias" if alias else kind,  # type: ignore[arg-type]
            text=self._raw(node, start, end) if kind == "scalar" else "",
            start=start,
            end=end,
            line=(key or node).start_mark.line + 1,
            key_start=key.start_mark.index if key is not None and key.id == "scalar" else None,
            shared=shared,
            flow=flow,
        )

    def _raw(self, node: Any, start: int, end: int) -> str:
        """The text as it stands there; a block or folded scalar by what it means."""
        if node.style in ("|", ">"):
            return str(node.value)
        return self.text[start:end]


def _twice(root: Any) -> Iterator[int]:
    """The nodes that are reached more than once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            yield id(node)
            continue
        seen.add(id(node))
        if node.id == "mapping":
            waiting += [part for pair in node.value for part in pair]
        elif node.id == "sequence":
            waiting += node.value


FORMATS = {"json": "json", "jsonc": "json", "json5": "json", "toml": "toml", "py": "python"}
"""The end of a file's name -> its format; every other is YAML."""
READERS: dict[str, Callable[[str, str], Iterator[Setting]]] = {
    "yaml": read_yaml,
    "json": read_json,
    "toml": read_toml,
    "python": read_python,
}
