"""A config as bytes with the places of its values: read, changed in place, proven.

Nothing is dumped: a reader says where a value stands, the new value replaces the old text there,
the result is read again and both trees are compared. What
cannot be changed like this is refused and stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from gpusetup.configs.python_text import read_python
from gpusetup.configs.settings import FALSE, TRUE, Path, Setting, dotted, unquoted
from gpusetup.configs.toml_text import read_toml
from gpusetup.configs.yaml_text import read_json, read_yaml
from gpusetup.errors import BadInput
from gpusetup.model.frozen import Frozen, replace

BOM = "\ufeff"
SIZE_LIMIT_BYTES = 1 << 20
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

    @property
    def raw(self) -> bytes:
        return ((BOM if self.bom else "") + self.text).encode()


class Edit(Frozen):
    """One change of the text. `path` is the setting that is changed, or added."""

    path: Path
    start: int
    end: int
    text: str
    value: str
    """What the setting is then, as it is written."""


def read_config(raw: bytes, name: str) -> Config:
    """The settings of a YAML, JSON, TOML or Python file; `BadInput` names the place."""
    if len(raw) > SIZE_LIMIT_BYTES:
        raise BadInput(f"{name} has {len(raw):,} bytes: too large for a training config")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        hint = "save the file again as UTF-8"
        raise BadInput(f"{name}, line {line}: not UTF-8 text", hint=hint) from problem
    bom = text.startswith(BOM)
    text = text[1:] if bom else text
    kind = FORMATS.get(name.lower().rpartition(".")[2], "yaml")
    try:
        settings = tuple(READERS[kind](text, name))
    except (RecursionError, MemoryError) as problem:
        raise BadInput(f"{name}: nested too deeply") from problem
    return Config(
        name=name,
        text=text,
        format=kind,  # type: ignore[arg-type]
        settings=settings,
        bom=bom,
        newline="\r\n" if "\r\n" in text else "\n",
    )


def edited(config: Config, edits: Sequence[Edit]) -> Config:
    """The config with the edits made; `BadInput` if anything else would change with them."""
    if not edits:
        return config
    text = config.text
    # From the end, so that the places of the others stay.
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    after = read_config(replace(config, text=text).raw, config.name)
    _check_edits(config, after, edits)
    return after


def _check_edits(before: Config, after: Config, edits: Sequence[Edit]) -> None:
    """The trees are the same, but for the settings that were meant."""
    old = {setting.path: _content(setting) for setting in before.settings}
    new = {setting.path: _content(setting) for setting in after.settings}
    for edit in edits:
        if new.pop(edit.path, None) != ("scalar", edit.value):
            raise BadInput(f"{before.name}: {dotted(edit.path)} cannot be changed in place")
        old.pop(edit.path, None)
    if list(old.items()) != list(new.items()):
        raise BadInput(
            f"{before.name}: the change would reach further than the value itself",
            hint="an anchor, a tag or an unusual layout is in the way: change it by hand",
        )


def _content(setting: Setting) -> tuple[str, ...]:
    """What must stay the same of a setting: a map and a list say it by what stands in them."""
    if setting.kind == "scalar":
        return (setting.kind, setting.text)
    return (setting.kind,)


def replacement(config: Config, setting: Setting, value: str) -> Edit | None:
    """The edit that writes a value over a setting's; None if the place does not allow it."""
    if config.format == "toml" and not setting.end:
        return None  # no place is known of it
    unquoted_text = unquoted(setting.text)
    if setting.kind != "scalar" or setting.shared or not BARE.fullmatch(unquoted_text):
        return None
    new_text = _in_its_spelling(config, value, unquoted_text)
    if unquoted_text != setting.text:
        new_text = setting.text[0] + new_text.strip('"') + setting.text[0]
    start, end = setting.start, setting.end
    return Edit(path=setting.path, start=start, end=end, text=new_text, value=new_text)


def _in_its_spelling(config: Config, value: str, like: str) -> str:
    """The new value as the old one was spelled: `True`, `yes`, `on`; quoted in JSON if it is text.

    >>> _in_its_spelling(Config(name="c", text="", format="yaml", settings=()), "true", "False")
    'True'
    """
    switches = {"true": TRUE, "false": FALSE}
    if value in switches and like in TRUE + FALSE:
        # Both lists have the spellings in the same order.
        spelling = TRUE.index(like) if like in TRUE else FALSE.index(like)
        return switches[value][spelling]
    is_text = re.fullmatch(r"-?\d+(\.\d+)?|[Tt]rue|[Ff]alse|null|None", value) is None
    return f'"{value}"' if is_text and config.format in ("json", "python") else value


def added_line(config: Config, beside: Setting, name: str, value: str) -> Edit | None:
    """The edit that adds a key on a line of its own below another; None if that has no place."""
    key_start, end, text = beside.key_start, beside.end, config.text
    # TOML and Python tell no place of a key.
    if beside.kind != "scalar" or beside.shared or key_start is None:
        return None
    line_start = text.rfind("\n", 0, key_start) + 1
    if config.format == "json":
        indent = text[line_start:key_start]
        # In a file of one line the new key stands behind its neighbour.
        has_own_line = line_start > 0 and not indent.strip()
        gap = config.newline + indent if has_own_line else " "
        addition = f',{gap}"{name}": {value}'
    else:
        rest_of_line, newline, _ = text[end:].partition("\n")
        is_last_of_line = re.fullmatch(r"\s*(#.*)?\r?", rest_of_line) is not None
        has_several_lines = "\n" in text[key_start:end]
        if beside.flow or has_several_lines or not is_last_of_line:
            return None
        end += len(rest_of_line) + len(newline)
        indent = " " * (key_start - line_start)
        new_line = f"{indent}{name}: {value}"
        addition = new_line + config.newline if newline else config.newline + new_line
    return Edit(path=(*beside.path[:-1], name), start=end, end=end, text=addition, value=value)


FORMATS = {"json": "json", "jsonc": "json", "json5": "json", "toml": "toml", "py": "python"}
"""The end of a file's name -> its format; every other is YAML."""
READERS: dict[str, Callable[[str, str], Iterator[Setting]]] = {
    "yaml": read_yaml,
    "json": read_json,
    "toml": read_toml,
    "python": read_python,
}
