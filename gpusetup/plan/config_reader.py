"""Finds settings in a config by the role of their key (such as `batch`), converts them to numbers,
switches or words, and records which settings were read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpusetup.configs.config import Config
from gpusetup.configs.keys import is_switched_off, key_of, meaning, takes_no_memory
from gpusetup.configs.settings import EMPTY, FALSE, TRUE, Path, Setting, dotted, name_of
from gpusetup.errors import BadInput
from gpusetup.model.documents import ConfigKey

OTHER_MODELS = frozenset((
    "rollout", "rollout_model", "ref", "critic", "reward_model", "auxiliary_models", "teacher",
    "explorer", "inference",
))  # fmt: skip
"""A key under one of these maps describes a model other than the trained one."""
SWITCH_VALUES = dict.fromkeys(TRUE, True) | dict.fromkeys(FALSE, False)
MOST_DIGITS = 18
"""Python refuses to convert thousands of digits, and a number with more than these is out of range
for every setting."""
LEFT_OPEN = ("auto", "???")
"""Values that leave the choice to the trainer. OmegaConf writes `???` for a missing value."""
LONGEST_VALUE = 80
"""The number of characters of a value that the answer shows."""
ANCHOR = re.compile(r"(?:&\S+\s+)?")
"""The YAML anchor before a value, if there is one: `&width 64`."""
Fields = dict[str, Any]
"""Fields of a job or question by name, and `per_gpu`, `total` and `gpus` for `FromConfig`."""
Meaning = Callable[[Setting, str], Any]
"""A function from a setting and its text to the value it means; None if it means nothing."""


def by_words(kind: str, if_on: str | None = None) -> Meaning:
    """A function that looks up a setting's meaning in the table of this kind: by the setting's text
    or, for a switch that is on, by its key (`flash_attention: true`).

    `if_on`: the meaning of a switch that is on and whose key has no known meaning.
    """

    def meaning_of(setting: Setting, text: str) -> Any:
        if text not in TRUE:
            return meaning(kind, text)
        return meaning(kind, name_of(setting.path)) or if_on

    return meaning_of


class Reader:
    """Reads one config, and records which settings were read and what was assumed."""

    def __init__(self, config: Config, variables: Mapping[str, str]) -> None:
        self.config = config
        self.by_role: dict[str, list[Setting]] = {}
        self.by_path = {setting.path: setting for setting in config.settings}
        self.used: dict[Path, ConfigKey] = {}
        self.assumed: list[str] = []
        self.variables = variables
        for setting in config.settings:
            key = key_of(setting.path)
            if key is not None and OTHER_MODELS.isdisjoint(setting.path[:-1]):
                self.by_role.setdefault(key.role, []).append(setting)

    def with_role(self, role: str) -> Iterator[tuple[Setting, str]]:
        """All settings with this role that have a value, each with its text."""
        for setting in self.by_role.get(role, ()):
            text = self.text(setting)
            if text is not None:
                yield setting, text

    def word(self, role: str, meaning: Meaning | None = None) -> Any:
        """The value of the first setting with this role that `meaning` understands, if any."""
        for setting, text in self.with_role(role):
            value = meaning(setting, text) if meaning else text
            if value is None:
                continue
            # A setting with another text was not used, so it is not recorded as read.
            for repeated, repeated_text in self.with_role(role):
                if repeated_text == text:
                    self.note(repeated, f"{role}: {value}")
            return value
        return None

    def number(self, role: str, most: int) -> Any:
        """The first whole number set for this role; None if there is none."""
        return self.word(role, lambda setting, text: self.number_in(setting, text, most))

    def number_in(self, setting: Setting, text: str, most: int) -> int | None:
        """The whole number in a setting's text; None if it holds anything else. 0 and -1 mean "no
        limit" in many trainers, so they count as not set. BadInput with the line number for any
        other number that is not from 1 to `most`."""
        digits = text.replace("_", "")
        if not re.fullmatch(r"[+-]?\d+", digits) or digits in ("0", "-1"):
            return None
        value = int(digits) if len(digits) <= MOST_DIGITS else most + 1
        if not 1 <= value <= most:
            problem = f"{digits[:LONGEST_VALUE]}: out of range"
            raise self.refused(setting, problem, f"1 to {most:,}")
        return value

    def switch(self, role: str) -> Any:
        """Whether the first switch with this role is on; None if there is none."""
        return self.word(role, lambda _, text: SWITCH_VALUES.get(text))

    def with_key(self, name: str, inside: str | None = None) -> Iterator[tuple[Setting, str]]:
        """All settings with this key that have a value, in any section of the config; an item of a
        list counts under the list's key. `inside`: a map that must contain the setting."""
        for setting in self.config.settings:
            keys = [part for part in setting.path if isinstance(part, str)]
            if keys[-1:] != [name] or (inside is not None and inside not in keys[:-1]):
                continue
            text = self.text(setting)
            if text is not None:
                yield setting, text

    def text_of_key(self, name: str, meaning: str, inside: str | None = None) -> str | None:
        """The first text set under this key, which is recorded as read; None if there is none."""
        for setting, text in self.with_key(name, inside):
            self.note(setting, f"{meaning}: {text}")
            return text
        return None

    def has_map(self, name: str) -> bool:
        """Whether the config has a map of this name at its top level."""
        return any(path[:1] == (name,) for path in self.by_path)

    def text(self, setting: Setting) -> str | None:
        """The text of a scalar without quotes and anchors, in which every `${...}` is replaced by
        its value.

        None if the text is empty, or if a variable or reference cannot be resolved.
        """
        if setting.is_collection:
            return None
        text = bare(setting.text)
        if text is None or text in LEFT_OPEN:
            return None
        for _ in range(MOST_PARTS):
            expression = INNERMOST.search(text)
            if expression is None:
                is_closed = "${" not in text
                return text if text and is_closed else None
            value = self.value_of(expression[1].strip(), setting)
            if value is None:
                return None
            text = f"{text[: expression.start()]}{value}{text[expression.end() :]}"
            if len(text) > MOST_LETTERS:
                break
        return None

    def value_of(self, expression: str, setting: Setting) -> str | None:
        """The value of what stands between `${` and `}` in a setting; None if there is none.

        These are OmegaConf's references (`model.path`) and its resolvers `oc.env` (an environment
        variable with an optional default) and `oc.decode` (parses a text as a value). Other
        resolvers may be code of the user's project, which we never run.
        """
        if hit := VARIABLE.fullmatch(expression):
            variable, default = hit[1], bare(hit[2])
            value = self.variables.get(variable) or default
            state = "is set" if self.variables.get(variable) else "is not set"
            result = "nothing was read, and OmegaConf would fail there, so export the variable"
            if value:
                result = f"{value} was read"
            key = dotted(setting.path)
            self.assumed.append(f"{key} refers to the variable {variable}, which {state}: {result}")
            return value
        resolver, colon, argument = expression.partition(":")
        if colon:
            return bare(argument) if resolver == "oc.decode" else None
        other = self.by_path.get(tuple(expression.split(".")))
        return None if other is None or other.is_collection else bare(other.text)

    def note(self, setting: Setting, meaning: str) -> None:
        """Record that a setting was read, and what it means. The first meaning stays, because later
        reads use the same value for another purpose."""
        self.used.setdefault(setting.path, key_read(setting, meaning))

    def refused(self, setting: Setting, problem: str, hint: str) -> BadInput:
        """The error to raise for a setting with an impossible value, with file, line and key."""
        line = f"{self.config.name}, line {setting.line}"
        return BadInput(f"{line}: `{dotted(setting.path)}` is {problem}", hint=hint)

    def not_understood(self, maps_without_report: frozenset[str]) -> Iterator[ConfigKey]:
        """The settings that were not read and that may need memory, outside of
        `maps_without_report` (of other programs, or other models that plan counts as a whole)."""
        for setting in self.config.settings:
            text = self.text(setting)
            if not text or setting.path in self.used:
                continue
            if is_switched_off(text) or takes_no_memory(setting.path):
                continue
            if maps_without_report.isdisjoint(setting.path[:-1]):
                yield key_read(setting, "")


def key_read(setting: Setting, meaning: str) -> ConfigKey:
    """A setting as an entry of the answer; its meaning is "" if plan did not understand it."""
    # A list or map has no single value that fits on a line of the answer.
    value = "" if setting.is_collection else setting.text.strip()[:LONGEST_VALUE]
    return ConfigKey(key=dotted(setting.path), line=setting.line, value=value, meaning=meaning)


MOST_PARTS = 200
"""The limit on `${...}` parts in one value. Without it, a config that refers to itself would never
end, and a chain of values that each name the next one twice would grow exponentially."""
MOST_LETTERS = 10_000
INNERMOST = re.compile(r"\$\{([^${}]*)\}")
"""An expression that contains no other one, so that nested ones are resolved from the inside."""
VARIABLE = re.compile(r"(?:oc\.env|env):\s*([^,\s]+)\s*(?:,(.*))?", re.DOTALL)
"""A variable with its default, as OmegaConf and Hydra write it."""


def bare(text: str | None) -> str | None:
    """A scalar without its YAML anchor and quotes; None if it is empty or null (`null`, `~`)."""
    value = ANCHOR.sub("", text or "", count=1).strip().strip("'\"")
    return None if value in EMPTY else value
