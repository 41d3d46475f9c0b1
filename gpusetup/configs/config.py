"""Reads a config file with the positions of its values, changes values in place, and checks the
result.

The file is never rewritten from parsed data, so its layout and comments stay. A reader gives the
position of each value, and the new value replaces the old text there. The result is then read again
and compared with the original; if anything else changed, the edit is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from gpusetup.configs.settings import FALSE, TRUE, Path, Setting, dotted, unquoted
from gpusetup.configs.yaml_text import read_yaml
from gpusetup.errors import BadInput
from gpusetup.model.frozen import Frozen, replace

BOM = "\ufeff"
SIZE_LIMIT_BYTES = 1 << 20
BARE = re.compile(r"[A-Za-z0-9_.+\-]+")
"""Matches values that may be replaced: plain words and numbers without quotes or comments."""


class Config(Frozen):
    """A config file: its text, and each setting with its position in the text."""

    name: str
    text: str
    format: Literal["yaml", "json"]
    settings: tuple[Setting, ...]
    bom: bool = False
    newline: str = "\n"

    @property
    def raw(self) -> bytes:
        """The file's content as bytes, with a byte order mark if the original has one."""
        return f"{BOM if self.bom else ''}{self.text}".encode()


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
    """Read the settings of a YAML or JSON file; BadInput names the line if the file is invalid."""
    if name.lower().endswith((".py", ".toml", ".sh", ".ipynb")):
        raise BadInput(
            f"{name}: gpusetup reads configs only in YAML or JSON",
            hint="write its settings into a YAML or JSON file",
        )
    if len(raw) > SIZE_LIMIT_BYTES:
        raise BadInput(f"{name} has {len(raw):,} bytes: too large for a training config")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        hint = "save the file again as UTF-8"
        raise BadInput(f"{name}, line {line}: not UTF-8 text", hint=hint) from problem
    # Positions do not count the byte order mark.
    has_bom = text.startswith(BOM)
    text = text.removeprefix(BOM)
    try:
        settings = tuple(read_yaml(text, name))
    except (RecursionError, MemoryError) as problem:
        raise BadInput(f"{name}: nested too deeply") from problem
    return Config(
        name=name,
        text=text,
        format="json" if name.lower().endswith(".json") else "yaml",
        settings=settings,
        bom=has_bom,
        newline="\r\n" if "\r\n" in text else "\n",
    )


def edited(config: Config, edits: Sequence[Edit]) -> Config:
    """The config after the edits; BadInput if they would change any other setting."""
    if not edits:
        return config
    text = config.text
    # Start from the end, so that the positions of the other edits stay valid.
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end), reverse=True):
        text = f"{text[: edit.start]}{edit.text}{text[edit.end :]}"
    changed = read_config(replace(config, text=text).raw, config.name)
    old, new = kinds_and_texts(config), kinds_and_texts(changed)
    for edit in edits:
        if new.pop(edit.path, None) != ("scalar", edit.value):
            raise BadInput(f"{config.name}: {dotted(edit.path)} cannot be changed in place")
        # An added key has no old value.
        old.pop(edit.path, None)
    # Lists, because the order matters too and a comparison of dicts ignores it.
    if list(old.items()) != list(new.items()):
        raise BadInput(
            f"{config.name}: the change would affect more than this value",
            hint="an anchor, a tag or an unusual layout prevents it: change the value by hand",
        )
    return changed


def kinds_and_texts(config: Config) -> dict[Path, tuple[str, str]]:
    """Path -> kind and text of each setting; "" instead of the text of a map or list, which is
    compared through its items, and of an alias, which is compared through its anchor."""
    values: dict[Path, tuple[str, str]] = {}
    for setting in config.settings:
        text = setting.text if setting.kind == "scalar" else ""
        values[setting.path] = (setting.kind, text)
    return values


NOT_QUOTED = re.compile(r"-?\d+(\.\d+)?|true|false|null")
"""Values that JSON writes without quotes."""


def replacement(config: Config, setting: Setting, value: str) -> Edit | None:
    """The edit that replaces a setting's value, in the old value's quotes and spelling of a switch;
    None if the value cannot be replaced in place."""
    if setting.kind != "scalar" or setting.shared:
        return None
    old = unquoted(setting.text)
    if not BARE.fullmatch(old):
        return None
    new = value
    if value in ("true", "false") and old in TRUE + FALSE:
        # TRUE and FALSE have matching spellings (`yes` and `no`) at the same index.
        spelling = (TRUE if old in TRUE else FALSE).index(old)
        new = (TRUE if value == "true" else FALSE)[spelling]
    elif config.format == "json" and not NOT_QUOTED.fullmatch(value):
        new = f'"{value}"'
    if old != setting.text:
        # The quotes of the old value replace those for JSON.
        quote = setting.text[0]
        new = quote + new.strip('"') + quote
    return Edit(path=setting.path, start=setting.start, end=setting.end, text=new, value=new)


def added_line(config: Config, neighbour: Setting, name: str, value: str) -> Edit | None:
    """The edit that adds a key on a new line below an existing one; None if that is impossible."""
    # In `{...}`, and so in all of JSON, a new key would need a comma too.
    if neighbour.flow or neighbour.kind != "scalar" or neighbour.shared:
        return None
    text, key_start, end = config.text, neighbour.key_start, neighbour.end
    # An item of a list has no key.
    if key_start is None:
        return None
    line_start = text.rfind("\n", 0, key_start) + 1
    # The last line may lack a newline.
    line_end = text.find("\n", end) + 1 or len(text)
    # The neighbour must be alone on one line, with at most a comment after it.
    rest_of_line = text[end:line_end].rstrip("\n")
    if "\n" in text[key_start:end] or not re.fullmatch(r"\s*(#.*)?\r?", rest_of_line):
        return None
    line = f"{' ' * (key_start - line_start)}{name}: {value}"
    ends_in_newline = text[:line_end].endswith("\n")
    addition = f"{line}{config.newline}" if ends_in_newline else f"{config.newline}{line}"
    path = (*neighbour.path[:-1], name)
    return Edit(path=path, start=line_end, end=line_end, text=addition, value=value)
