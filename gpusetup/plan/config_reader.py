"""Finds settings in a config by the role of their key (such as `batch`), converts them to numbers,
switches or words, and records which settings were read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpusetup.configs.config import Config
from gpusetup.configs.costless_keys import is_switched_off, takes_no_memory
from gpusetup.configs.keys import key_of, meaning
from gpusetup.configs.settings import EMPTY, FALSE, TRUE, Setting, dotted, name_of
from gpusetup.errors import BadInput
from gpusetup.model.documents import ConfigKey
from gpusetup.plan.interpolation import Interpolation

OTHER_MODELS = frozenset((
    "rollout", "rollout_model", "ref", "critic", "reward_model", "auxiliary_models", "teacher",
    "explorer", "inference",
))  # fmt: skip
"""A key under one of these maps describes a model other than the trained one."""
SWITCH_VALUES = dict.fromkeys(TRUE, True) | dict.fromkeys(FALSE, False)
MOST_DIGITS = 19
"""A number with this many digits is out of range for every setting."""
LEFT_OPEN = ("auto", "???")
"""Values that leave the choice to the trainer. OmegaConf writes `???` for a missing value."""
LONGEST_VALUE = 80
"""The number of characters of a value that the answer shows."""
ANCHOR = re.compile(r"(?:&\S+\s+)?")
Fields = dict[str, Any]
"""Fields of a job or question by name, and `notes`, `per_gpu`, `total` and `devices` for
`FromConfig`."""


Meaning = Callable[[Setting, str], Any]
"""A function from a setting and its text to the value it means; None if it means nothing."""


def by_words(kind: str, if_on: str | None = None) -> Meaning:
    """A function that looks up a setting's meaning in the table of this kind: by the setting's text
    or, for a switch that is on, by its key.

    `if_on`: the meaning of a switch that is on and whose key has no known meaning.
    """

    def meaning_of(setting: Setting, text: str) -> Any:
        if text not in TRUE:
            return meaning(kind, text)
        # In `flash_attention: true` the key names what is switched on.
        name = name_of(setting.path)
        return meaning(kind, name) or if_on

    return meaning_of


class Reader:
    """Reads one config, and records which settings were read and what was assumed."""

    def __init__(self, config: Config, variables: Mapping[str, str]) -> None:
        self.config = config
        self.by_role: dict[str, list[Setting]] = {}
        self.by_path: dict[tuple[str | int, ...], Setting] = {}
        self.used: dict[tuple[str | int, ...], ConfigKey] = {}
        self.assumed: list[str] = []
        self.interpolation = Interpolation(self._written_text, variables)
        for setting in config.settings:
            # If a key occurs twice, the first one counts.
            self.by_path.setdefault(setting.path, setting)
            self._sort_by_role(setting)

    def _sort_by_role(self, setting: Setting) -> None:
        """File a setting under its role, unless it is about a model other than the trained one."""
        key = key_of(setting.path)
        if key is None:
            return
        is_of_other_model = not OTHER_MODELS.isdisjoint(setting.path[:-1])
        if not is_of_other_model:
            settings = self.by_role.setdefault(key.role, [])
            settings.append(setting)

    def all(self, role: str) -> Iterator[tuple[Setting, str]]:
        """All settings with this role that have a value, each with its text."""
        for setting in self.by_role.get(role, ()):
            text = self.text(setting)
            if text is not None:
                yield setting, text

    def word(self, role: str, meaning: Meaning | None = None) -> Any:
        """The value of the first setting with this role that `meaning` understands; None if there
        is none."""
        for setting, text in self.all(role):
            value = meaning(setting, text) if meaning else text
            if value is not None:
                self._note_repetitions(role, text, value)
                return value
        return None

    def _note_repetitions(self, role: str, text: str, value: Any) -> None:
        """Record as read all other settings of this role with the same text, because they repeat
        the value that was used."""
        for setting, repeated_text in self.all(role):
            # A different value was not used, so it is not recorded as read.
            if repeated_text != text:
                continue
            self.note(setting, f"{role}: {value}")

    def number(self, role: str, most: int = 10**6) -> Any:
        """The first whole number set for this role; BadInput with the line number if it is out of
        range. 0 and -1 count as not set."""

        def value_of(setting: Setting, text: str) -> int | None:
            digits = text.replace("_", "")
            is_number = re.fullmatch(r"[+-]?\d+", digits)
            # In many trainers 0 and -1 mean "no limit".
            if not is_number or digits in ("0", "-1"):
                return None
            # Do not convert a very long number, because Python refuses to convert thousands of
            # digits.
            value = int(digits) if len(digits) < MOST_DIGITS else most + 1
            if not 1 <= value <= most:
                raise self.refused(setting, f"{digits[:20]}: out of range", f"1 to {most:,}")
            return value

        return self.word(role, value_of)

    def decimal(self, role: str) -> float | None:
        """The first positive number set for this role, with or without decimals."""

        def value_of(_: Setting, text: str) -> float | None:
            is_number = re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text)
            return float(text) if is_number else None

        value: float | None = self.word(role, value_of)
        return value

    def number_anywhere(self, name: str, role: str, most: int) -> int | None:
        """The smallest whole number from 1 to `most` set under this key anywhere in the config,
        even in a section about another model.

        For example, the token budget of a reference model or a rollout also affects the training.
        """
        numbers = []
        for setting, text in self.settings_named(name):
            if not re.fullmatch(r"\d{1,18}", text):
                continue
            number = int(text)
            if 1 <= number <= most:
                numbers.append(number)
                self.note(setting, f"{role}: {number}")
        return min(numbers, default=None)

    def settings_named(self, name: str, inside: str | None = None) -> Iterator[tuple[Setting, str]]:
        """All settings with this key that have a value, in any section of the config.

        `inside`: the key of a map that must contain the setting. Items of a list count under the
        list's key.
        """
        for setting in self.config.settings:
            # In the path of a list item, a number follows the list's key, so look only at the
            # words.
            keys = [part for part in setting.path if isinstance(part, str)]
            if not keys or keys[-1] != name:
                continue
            maps = keys[:-1]
            if inside is not None and inside not in maps:
                continue
            text = self.text(setting)
            if text is not None:
                yield setting, text

    def text_named(self, name: str, meaning: str, inside: str | None = None) -> str | None:
        """Returns the first text that is set under this key and records it as read; None if there
        is none.
        """
        for setting, text in self.settings_named(name, inside):
            self.note(setting, f"{meaning}: {text}")
            return text
        return None

    def texts_named(self, name: str, meaning: str) -> tuple[str, ...]:
        """All texts set under this key, from a list or a single value; each is recorded as read."""
        texts: list[str] = []
        for setting, text in self.settings_named(name):
            self.note(setting, f"{meaning}: {text}")
            texts.append(text)
        return tuple(texts)

    def has_map(self, name: str) -> bool:
        """Whether the config has this key at its top level."""
        # A path contains numbers for items of lists; only a word can be the key of a map.
        top_keys = [path[0] for path in self.by_path if path]
        return name in top_keys

    def key_and_line(self, role: str) -> str:
        """The key and line number of the first setting with this role, as shown in the answer; the
        role itself if none is set."""
        for setting in self.by_role.get(role, ()):
            if not self.text(setting):
                continue
            key = dotted(setting.path)
            return f"`{key}` (line {setting.line})"
        return role

    def switch(self, role: str) -> Any:
        """Whether the first switch with this role is on; None if there is none."""

        def value_of(_: Setting, text: str) -> bool | None:
            return SWITCH_VALUES.get(text)

        return self.word(role, value_of)

    def names(self, role: str) -> frozenset[str]:
        """The words set for this role, from a list or a comma-separated text."""
        names: set[str] = set()
        for setting in self.by_role.get(role, ()):
            items = [setting]
            if setting.kind == "list":
                items = self._items_of(setting)
            for item in items:
                text = self.text(item) or ""
                names.update(map(str.strip, text.split(",")))
                self.note(item, role)
        names.discard("")
        return frozenset(names)

    def _items_of(self, setting: Setting) -> list[Setting]:
        """The settings that are direct items of a list setting."""
        items = []
        for path, item in self.by_path.items():
            if path[:-1] == setting.path:
                items.append(item)
        return items

    def text(self, setting: Setting) -> str | None:
        """The text of a scalar without quotes and anchors, with variables and references replaced.

        None if the text is empty, or if a variable or reference cannot be resolved.
        """
        if setting.is_collection:
            return None
        bare = bare_text(setting)
        if bare in EMPTY or bare in LEFT_OPEN:
            return None
        if "${" not in bare:
            return bare
        self.interpolation.asked.clear()
        value = self.interpolation.resolve(bare, setting.path)
        for variable in self.interpolation.asked:
            self.assumed.append(f"{dotted(setting.path)} takes {variable}")
        return value or None

    def _written_text(self, path: tuple[str | int, ...]) -> str | None:
        """The scalar at a path exactly as written, for values that refer to it; None if there is
        none."""
        setting = self.by_path.get(path)
        if setting is None or setting.is_collection:
            return None
        return bare_text(setting)

    def note(self, setting: Setting, meaning: str) -> None:
        """Record that a setting was read, and what it means. Only the first record of a setting is
        kept."""
        # Keep the first meaning, because later reads use the same value for another purpose.
        if setting.path in self.used:
            return
        self.used[setting.path] = key_read(setting, meaning)

    def refused(self, setting: Setting, problem: str, hint: str) -> BadInput:
        """The error to raise for a setting with an impossible value, with file, line and key."""
        line = f"{self.config.name}, line {setting.line}"
        key = dotted(setting.path)
        return BadInput(
            f"{line}: `{key}` is {problem}",
            hint=hint,
        )

    def not_understood(self, counted_maps: frozenset[str] = frozenset()) -> Iterator[ConfigKey]:
        """The settings that were not read and that may need memory.

        `counted_maps`: maps about other models that the plan counts as a whole.
        """
        for setting in self.config.settings:
            text = self.text(setting)
            if not text or setting.path in self.used:
                continue
            if is_switched_off(text) or takes_no_memory(setting.path):
                continue
            maps = setting.path[:-1]
            if counted_maps.isdisjoint(maps):
                yield key_read(setting, "")


def bare_text(setting: Setting) -> str:
    """The text of a scalar without its YAML anchor and quotes."""
    without_anchor = ANCHOR.sub("", setting.text, count=1)
    bare = without_anchor.strip()
    return bare.strip("'\"")


def key_read(setting: Setting, meaning: str) -> ConfigKey:
    """A setting as an entry of the answer, with its meaning, or with "" if plan did not understand
    it."""
    # A list or map has no single value that fits on a line of the answer.
    value = "" if setting.is_collection else setting.text.strip()[:LONGEST_VALUE]
    return ConfigKey(
        key=dotted(setting.path),
        line=setting.line,
        value=value,
        meaning=meaning,
    )
