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
    """Whether a change would affect other places too, for example through an anchor or alias."""
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
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).removeprefix(".")


def name_of(path: Path) -> str:
    """The last key of a path; "" for the whole file, the index for a list item.

    >>> name_of(("args", "batch_size")), name_of(()), name_of(("stages", 0))
    ('batch_size', '', '0')
    """
    return str(path[-1]) if path else ""


def words_of(word: str) -> set[str]:
    """The words of a name in lower case, split at underscores and before capital letters.

    >>> sorted(words_of("DataLoader")), sorted(words_of("val_ds"))
    (['data', 'loader'], ['ds', 'val'])
    """
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word)
    return set(re.findall(r"[a-z]+", separated.lower()))


def names_in(settings: Iterable[Setting]) -> frozenset[str]:
    """The names of all keys in the settings."""
    return frozenset(part for one in settings for part in one.path if isinstance(part, str))


def whole_number(setting: Setting) -> int | None:
    """The setting's value if it is a plain whole number; None for anything else (`"32"`, `auto`,
    `1e3`, or more than 18 digits, which may not fit into 64 bits).

    >>> whole_number(Setting(path=(), kind="scalar", text="32", start=0, end=2, line=1))
    32
    """
    # Refuse a leading zero, which means octal in YAML 1.1 and text in YAML 1.2.
    is_plain = re.fullmatch(r"[+-]?(0|[1-9]\d{0,17})", setting.text)
    return int(setting.text) if is_plain and setting.kind == "scalar" else None


def switch_value(setting: Setting) -> bool | None:
    """Whether a switch is on, quoted (`'no'`) or not; None if the setting is not a switch."""
    text = unquoted(setting.text)
    if setting.kind != "scalar" or text not in TRUE + FALSE:
        return None
    return text in TRUE


def unquoted(text: str) -> str:
    """The text of a scalar without the quotes around it; a quote on only one side is part of it.

    >>> unquoted("'no'"), unquoted("no"), unquoted("'")
    ('no', 'no', "'")
    """
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


def value_of(setting: Setting) -> int | bool | str | None:
    """The setting's value as a number, a switch or a text; None if it is empty."""
    if setting.text in EMPTY:
        return None
    number, text = whole_number(setting), unquoted(setting.text)
    if number is not None:
        return number
    # In quotes, a switch is a text.
    switch = switch_value(setting) if text == setting.text else None
    return text if switch is None else switch
