"""A single setting of a config with its position in the text, for every file format."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from gpusetup.model.frozen import Frozen

Path = tuple[str | int, ...]
"""The keys and list indices that lead to a setting."""
Kind = Literal["scalar", "list", "map", "alias"]

TRUE = ("true", "True", "TRUE", "yes", "Yes", "on", "On", "y", "Y")
FALSE = ("false", "False", "FALSE", "no", "No", "off", "Off", "n", "N")
EMPTY = ("", "null", "Null", "NULL", "None", "~")


MOST_DEPTH = 64
"""The deepest nesting that is read. No training config comes close, but a malicious file could
exhaust Python's stack."""


def child_path(path: Path, key: str | int) -> Path:
    """The path of a value under a key; RecursionError if the file is nested too deeply."""
    if len(path) >= MOST_DEPTH:
        raise RecursionError
    return (*path, key)


class Setting(Frozen):
    """A value in a config file, with its position; `text` is a scalar exactly as written."""

    path: Path
    kind: Kind
    text: str
    start: int
    end: int
    line: int
    key_start: int | None = None
    shared: bool = False
    """Whether changing the setting would affect other places too, for example through an anchor or
    alias."""
    flow: bool = False
    """Whether the setting is inside `{...}` or `[...]`."""

    @property
    def is_collection(self) -> bool:
        """Whether the setting is a list or a map, which has no text."""
        return self.kind in ("list", "map")


def dotted(path: Path) -> str:
    """A path written as one dotted name, for messages.

    >>> dotted(("data", "loaders", 0, "batch_size"))
    'data.loaders[0].batch_size'
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}"
    return text.removeprefix(".")


def key_name(word: str) -> str:
    """A key without the dashes of a command-line option, and with underscores instead of other
    dashes.

    >>> key_name("--train-batch-size"), key_name("batch_size")
    ('train_batch_size', 'batch_size')
    """
    if "-" not in word:
        return word
    return word.lstrip("-").replace("-", "_")


def name_of(path: Path) -> str:
    """The last key of a path without option dashes; "" for the whole file, the index for a list
    item.

    >>> name_of(("args", "--batch-size")), name_of(()), name_of(("stages", 0))
    ('batch_size', '', '0')
    """
    if not path:
        return ""
    return key_name(str(path[-1]))


def words_of(word: str) -> set[str]:
    """The words of a name in lower case, split at underscores and before capital letters.

    >>> sorted(words_of("DataLoader")), sorted(words_of("val_ds"))
    (['data', 'loader'], ['ds', 'val'])
    """
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word)
    words = re.findall(r"[a-z]+", separated.lower())
    return set(words)


def names_in(settings: Iterable[Setting]) -> frozenset[str]:
    """The names of all keys in the settings, without option dashes."""
    names: set[str] = set()
    for setting in settings:
        for part in setting.path:
            # Skip list indices.
            if isinstance(part, str):
                names.add(key_name(part))
    return frozenset(names)


def whole_number(setting: Setting) -> int | None:
    """The setting's value if it is a plain whole number; None for anything else (`"32"`, `auto`,
    `1e3`, 19 digits).

    >>> whole_number(Setting(path=(), kind="scalar", text="32", start=0, end=2, line=1))
    32
    """
    if setting.kind != "scalar":
        return None
    # Refuse a leading zero, which means octal in YAML 1.1 and text in YAML 1.2.
    is_plain = re.fullmatch(r"[+-]?(0|[1-9]\d{0,17})", setting.text)
    return int(setting.text) if is_plain else None


def switch_value(setting: Setting) -> bool | None:
    """Whether a switch is on, quoted (`'no'`) or not; None if the setting is not a switch."""
    if setting.kind != "scalar":
        return None
    text = unquoted(setting.text)
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    return None


def unquoted(text: str) -> str:
    """The text of a scalar without the quotes around it.

    >>> unquoted("'no'"), unquoted("no"), unquoted("'")
    ('no', 'no', "'")
    """
    if len(text) < 2:
        return text
    first, last = text[0], text[-1]
    # A quote on only one side is part of the text.
    if first == last and first in "'\"":
        return text[1:-1]
    return text


def value_of(setting: Setting) -> int | bool | str | None:
    """The setting's value as a number, a switch or a text; None if it is empty."""
    number = whole_number(setting)
    if number is not None:
        return number
    switch = switch_value(setting)
    if switch is not None:
        return switch
    if setting.text in EMPTY:
        return None
    return setting.text.strip("'\"")
