"""One setting of a config with its place in the text, whatever the file's format."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from gpusetup.model.frozen import Frozen

Path = tuple[str | int, ...]
"""The keys and places in lists that lead to a setting."""
Kind = Literal["scalar", "list", "map", "alias"]

TRUE = ("true", "True", "TRUE", "yes", "Yes", "on", "On", "y", "Y")
FALSE = ("false", "False", "FALSE", "no", "No", "off", "Off", "n", "N")
EMPTY = ("", "null", "Null", "NULL", "None", "~")


MOST_DEPTH = 64
"""Maps in maps. No training config comes near it; a hostile file would exhaust Python's stack."""


def child_path(path: Path, key: str | int) -> Path:
    """The path of what stands under a key; RecursionError if a file is nested too deeply."""
    if len(path) >= MOST_DEPTH:
        raise RecursionError
    return (*path, key)


class Setting(Frozen):
    """A value somewhere in the file; `text` is a scalar exactly as it is written."""

    path: Path
    kind: Kind
    text: str
    start: int
    end: int
    line: int
    key_start: int | None = None
    shared: bool = False
    """An anchor or an alias: changing it would change other places too."""
    flow: bool = False
    """It stands inside `{...}` or `[...]`."""


def dotted(path: Path) -> str:
    """A path as one name, for messages.

    >>> dotted(("data", "loaders", 0, "batch_size"))
    'data.loaders[0].batch_size'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def key_name(word: str) -> str:
    """A key without the dashes of a command line's option.

    >>> key_name("--train-batch-size"), key_name("batch_size")
    ('train_batch_size', 'batch_size')
    """
    return word.lstrip("-").replace("-", "_") if "-" in word else word


def name_of(path: Path) -> str:
    """The last word of a path, plain; "" for the whole file, the number of an item of a list.

    >>> name_of(("args", "--batch-size")), name_of(()), name_of(("stages", 0))
    ('batch_size', '', '0')
    """
    return key_name(str(path[-1])) if path else ""


def words_of(word: str) -> set[str]:
    """The words of a name, in small letters; a capital after a small letter begins one.

    >>> sorted(words_of("DataLoader")), sorted(words_of("val_ds"))
    (['data', 'loader'], ['ds', 'val'])
    """
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word)
    return set(re.findall(r"[a-z]+", separated.lower()))


def names_in(settings: Iterable[Setting]) -> frozenset[str]:
    """Every key of the config."""
    names: set[str] = set()
    for setting in settings:
        names.update(key_name(part) for part in setting.path if isinstance(part, str))
    return frozenset(names)


def whole_number(setting: Setting) -> int | None:
    """A whole number as plain digits; None for anything else (`"32"`, `auto`, `1e3`, 19 digits).

    >>> whole_number(Setting(path=(), kind="scalar", text="32", start=0, end=2, line=1))
    32
    """
    is_plain = re.fullmatch(r"[+-]?(0|[1-9]\d{0,17})", setting.text) is not None
    return int(setting.text) if setting.kind == "scalar" and is_plain else None


def switch_value(setting: Setting) -> bool | None:
    """A switch, quoted (`'no'`) or not; None for anything else."""
    if setting.kind != "scalar":
        return None
    text = unquoted(setting.text)
    if text in TRUE:
        return True
    return False if text in FALSE else None


def unquoted(text: str) -> str:
    """A scalar's text without the quotes around it.

    >>> unquoted("'no'"), unquoted("no"), unquoted("'")
    ('no', 'no', "'")
    """
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


def value_of(setting: Setting) -> int | bool | str | None:
    """The value as an answer shows it: a number, a switch, or its text."""
    number, switch = whole_number(setting), switch_value(setting)
    if number is not None:
        return number
    if switch is not None:
        return switch
    return None if setting.text in EMPTY else setting.text.strip("'\"")
