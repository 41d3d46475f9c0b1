"""Reads a config file with the positions of its values, changes values in place, and checks the
result.

The file is never rewritten from parsed data, so its layout and comments stay. A reader gives the
position of each value, and the new value replaces the old text there. The result is then read again
and compared with the original; if anything else changed, the edit is refused.
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
"""Matches values that may be replaced: plain words and numbers without quotes, tags, anchors or
comments."""


Format = Literal["yaml", "json", "toml", "python"]


class Config(Frozen):
    """A config file: its text, and each setting with its position in the text."""

    name: str
    text: str
    format: Format
    settings: tuple[Setting, ...]
    bom: bool = False
    newline: str = "\n"

    @property
    def raw(self) -> bytes:
        """The file's content as bytes, with a byte order mark if the original has one."""
        text = self.text
        if self.bom:
            text = BOM + text
        return text.encode()


class Edit(Frozen):
    """One change of the text: the characters from `start` to `end` are replaced. `path` is the
    setting that changes or is added."""

    path: Path
    start: int
    end: int
    text: str
    value: str
    """The setting's text after the edit."""


def read_config(raw: bytes, name: str) -> Config:
    """Read the settings of a YAML, JSON, TOML or Python file; BadInput names the line if the file
    is invalid."""
    if len(raw) > SIZE_LIMIT_BYTES:
        raise BadInput(f"{name} has {len(raw):,} bytes: too large for a training config")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        raise BadInput(
            f"{name}, line {line}: not UTF-8 text",
            hint="save the file again as UTF-8",
        ) from problem
    # Positions do not count the byte order mark.
    has_bom = text.startswith(BOM)
    text = text.removeprefix(BOM)
    ending = name.lower().rpartition(".")[2]
    kind = FORMATS.get(ending, "yaml")
    try:
        settings = tuple(READERS[kind](text, name))
    except (RecursionError, MemoryError) as problem:
        raise BadInput(f"{name}: nested too deeply") from problem
    return Config(
        name=name,
        text=text,
        format=kind,
        settings=settings,
        bom=has_bom,
        newline="\r\n" if "\r\n" in text else "\n",
    )


def edited(config: Config, edits: Sequence[Edit]) -> Config:
    """The config after the edits; BadInput if they would change anything besides the edited
    settings."""
    if not edits:
        return config
    text = config.text
    # Start from the end, so that the positions of the other edits stay valid.
    in_order = sorted(edits, key=lambda edit: (edit.start, edit.end))
    for edit in reversed(in_order):
        before = text[: edit.start]
        after = text[edit.end :]
        text = f"{before}{edit.text}{after}"
    new_file = replace(config, text=text).raw
    changed = read_config(new_file, config.name)
    _check_edits(config, changed, edits)
    return changed


def _check_edits(before: Config, after: Config, edits: Sequence[Edit]) -> None:
    """Raise BadInput unless the two configs differ only in the edited settings."""
    old, new = _contents(before), _contents(after)
    for edit in edits:
        content = new.pop(edit.path, None)
        if content != ("scalar", edit.value):
            raise BadInput(f"{before.name}: {dotted(edit.path)} cannot be changed in place")
        # Leave the setting out of the comparison. An added setting is not in the old config.
        old.pop(edit.path, None)
    # Compare lists, because the order matters too and a comparison of dicts ignores it.
    if list(old.items()) != list(new.items()):
        raise BadInput(
            f"{before.name}: the change would reach further than the value itself",
            hint="an anchor, a tag or an unusual layout is in the way: change it by hand",
        )


def _contents(config: Config) -> dict[Path, tuple[str, ...]]:
    """Path of each setting -> its content for comparison, in the file's order."""
    contents = {}
    for setting in config.settings:
        contents[setting.path] = _content(setting)
    return contents


def _content(setting: Setting) -> tuple[str, ...]:
    """The content of a setting for comparison: its kind and, for a scalar, its text. A map or list
    is compared through its items."""
    if setting.kind == "scalar":
        return (setting.kind, setting.text)
    return (setting.kind,)


def replacement(config: Config, setting: Setting, value: str) -> Edit | None:
    """The edit that replaces a setting's value; None if the value cannot be replaced in place."""
    has_no_place = config.format == "toml" and not setting.end
    if has_no_place or setting.kind != "scalar" or setting.shared:
        return None
    text = setting.text
    unquoted_text = unquoted(text)
    if not BARE.fullmatch(unquoted_text):
        return None
    new_text = _in_its_spelling(config, value, unquoted_text)
    if unquoted_text != text:
        # Keep the quotes of the old value.
        quote = text[0]
        new_text = quote + new_text.strip('"') + quote
    return Edit(
        path=setting.path,
        start=setting.start,
        end=setting.end,
        text=new_text,
        value=new_text,
    )


def _in_its_spelling(config: Config, value: str, like: str) -> str:
    """The new value in the style of the old one: the same spelling of switches, and quotes if the
    format requires them.

    >>> _in_its_spelling(Config(name="c", text="", format="yaml", settings=()), "true", "False")
    'True'
    """
    spellings = {"true": TRUE, "false": FALSE}.get(value)
    if spellings is not None and like in TRUE + FALSE:
        # TRUE and FALSE list matching spellings (such as `yes` and `no`) in the same order.
        list_of_like = TRUE if like in TRUE else FALSE
        number = list_of_like.index(like)
        return spellings[number]
    needs_quotes = config.format in ("json", "python")
    if not needs_quotes or NOT_QUOTED.fullmatch(value):
        return value
    return f'"{value}"'


NOT_QUOTED = re.compile(r"-?\d+(\.\d+)?|[Tt]rue|[Ff]alse|null|None")
"""Values that JSON and Python write without quotes."""


def added_line(config: Config, neighbour: Setting, name: str, value: str) -> Edit | None:
    """The edit that adds a key on a new line below an existing one; None if that is not possible in
    this file."""
    # Lines can only be added if the key's position is known; the readers for TOML and Python do not
    # give it.
    if neighbour.kind != "scalar" or neighbour.shared or neighbour.key_start is None:
        return None
    if config.format == "json":
        end = neighbour.end
        addition = _json_line(config, neighbour.key_start, name, value)
    elif _ends_its_line(config, neighbour, neighbour.key_start):
        end = _line_end(config.text, neighbour.end)
        line = _yaml_line(config, neighbour.key_start, f"{name}: {value}")
        addition = f"{line}{config.newline}"
        # If the last line has no newline, put a newline before the added line instead of after it.
        if not config.text[:end].endswith("\n"):
            addition = f"{config.newline}{line}"
    else:
        return None
    return Edit(
        path=(*neighbour.path[:-1], name),
        start=end,
        end=end,
        text=addition,
        value=value,
    )


def _line_start(text: str, position: int) -> int:
    """The position at which the line that contains `position` starts."""
    last_end = text.rfind("\n", 0, position)
    return last_end + 1


def _line_end(text: str, position: int) -> int:
    """The position just after the newline of the line that contains `position`."""
    newline = text.find("\n", position)
    # The last line may lack a newline. In that case the line ends where the text ends.
    if newline < 0:
        return len(text)
    return newline + 1


def _json_line(config: Config, key_start: int, name: str, value: str) -> str:
    """The JSON text that adds a key after the key at `key_start`, with its indentation."""
    line_start = _line_start(config.text, key_start)
    indent = config.text[line_start:key_start]
    # If the JSON is on one line, the new key goes on that line too.
    has_own_line = line_start > 0 and not indent.strip()
    gap = " "
    if has_own_line:
        gap = f"{config.newline}{indent}"
    return f',{gap}"{name}": {value}'


def _yaml_line(config: Config, key_start: int, text: str) -> str:
    """A line of text, indented like the key at `key_start`."""
    line_start = _line_start(config.text, key_start)
    column = key_start - line_start
    indent = " " * column
    return f"{indent}{text}"


def _ends_its_line(config: Config, neighbour: Setting, key_start: int) -> bool:
    """Whether a YAML setting is alone on its line, with at most a comment after it."""
    key_and_value = config.text[key_start : neighbour.end]
    if neighbour.flow or "\n" in key_and_value:
        return False
    line_end = _line_end(config.text, neighbour.end)
    behind = config.text[neighbour.end : line_end]
    is_comment = re.fullmatch(r"\s*(#.*)?\r?", behind.rstrip("\n"))
    return is_comment is not None


FORMATS: dict[str, Format] = {
    "json": "json",
    "jsonc": "json",
    "json5": "json",
    "toml": "toml",
    "py": "python",
}
"""File extension -> format; all other files are read as YAML."""
READERS: dict[Format, Callable[[str, str], Iterator[Setting]]] = {
    "yaml": read_yaml,
    "json": read_json,
    "toml": read_toml,
    "python": read_python,
}
