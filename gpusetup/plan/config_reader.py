"""Asking a config by role: numbers in range, switches, words; each answer is written down."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpusetup.configs.config import Config
from gpusetup.configs.keys import NO_GPU_MEMORY, key_of
from gpusetup.configs.settings import EMPTY, FALSE, TRUE, Setting, dotted
from gpusetup.errors import BadInput
from gpusetup.model.documents import ConfigKey

OTHER_MODELS = frozenset((
    "rollout", "rollout_model", "ref", "critic", "reward_model", "auxiliary_models", "teacher",
    "explorer", "inference",
))  # fmt: skip
"""A key under one of these is about another model than the one that is trained."""
SWITCH_VALUES = dict.fromkeys(TRUE, True) | dict.fromkeys(FALSE, False)
ANCHOR = re.compile(r"(?:&\S+\s+)?")
VARIABLE = re.compile(r"(?:\$\{oc\.decode:\s*)?\$\{oc\.env:\s*([\w.]+)\s*(?:,\s*(.*?)\s*)?\}\}?")
REFERENCE = re.compile(r"\$\{([\w.]+)\}")


class Reader:
    """One config, and what was read of it so far."""

    def __init__(self, config: Config, variables: Mapping[str, str]) -> None:
        self.config, self.variables = config, variables
        self.by_role: dict[str, list[Setting]] = {}
        self.by_path: dict[tuple[str | int, ...], Setting] = {}
        self.used: dict[tuple[str | int, ...], ConfigKey] = {}
        self.assumed: list[str] = []
        for one in config.settings:
            self.by_path.setdefault(one.path, one)
            key = key_of(one.path)
            if key is not None and not OTHER_MODELS & set(one.path[:-1]):
                self.by_role.setdefault(key.role, []).append(one)

    def all(self, role: str) -> Iterator[tuple[Setting, str]]:
        """Each setting of a role that says something, with its text."""
        for setting in self.by_role.get(role, ()):
            text = self.text(setting)
            if text is not None:
                yield setting, text

    def word(self, role: str, meaning: Callable[[Setting, str], Any] | None = None) -> Any:
        """The first text of a role that says something, by what it and its setting mean."""
        for setting, text in self.all(role):
            value = meaning(setting, text) if meaning else text
            if value is not None:
                for other, same in self.all(role):
                    if same == text:
                        self.note(other, f"{role}: {value}")
                return value
        return None

    def number(self, role: str, most: int = 10**6) -> Any:
        """The first whole number of a role; `BadInput` with its place if it is out of range."""

        def value_of(setting: Setting, text: str) -> int | None:
            digits = text.replace("_", "")
            if not re.fullmatch(r"[+-]?\d+", digits) or digits in ("0", "-1"):
                return None
            value = int(digits) if len(digits) < 19 else most + 1
            if not 1 <= value <= most:
                raise self.refused(setting, f"{digits[:20]}: out of range", f"1 to {most:,}")
            return value

        return self.word(role, value_of)

    def switch(self, role: str) -> Any:
        """The first switch of a role."""
        return self.word(role, lambda _, text: SWITCH_VALUES.get(text))

    def names(self, role: str) -> frozenset[str]:
        """The words of a list, or of a text with commas."""
        names: set[str] = set()
        for setting in self.by_role.get(role, ()):
            inner = [one for path, one in self.by_path.items() if path[:-1] == setting.path]
            for one in inner if setting.kind == "list" else [setting]:
                words = (self.text(one) or "").split(",")
                names |= {word.strip() for word in words} - {""}
                self.note(one, role)
        return frozenset(names)

    def text(self, setting: Setting) -> str | None:
        """A scalar without quotes and anchors, its variables replaced; None if it is empty, or
        refers to a reference."""
        if setting.kind in ("list", "map"):
            return None
        bare = ANCHOR.sub("", setting.text, count=1).strip().strip("'\"")
        if bare in EMPTY or bare in ("auto", "???"):
            return None
        if variable := VARIABLE.fullmatch(bare):
            return self._variable(setting, variable[1], (variable[2] or "").strip("'\""))
        if "${" not in bare:
            return bare
        reference = REFERENCE.fullmatch(bare)
        other = self.by_path.get(tuple(reference[1].split("."))) if reference else None
        return None if other is None or REFERENCE.search(other.text) else self.text(other)

    def _variable(self, setting: Setting, name: str, default: str) -> str | None:
        """OmegaConf's variable of the environment, or its default."""
        set_value = self.variables.get(name)
        value = set_value or (None if default in EMPTY else default)
        is_set, was = "set" if set_value else "not set", "was" if value else "was not"
        outcome = f"is {is_set}: {value or 'it'} {was} read"
        self.assumed.append(f"{dotted(setting.path)} takes the variable {name}, which {outcome}")
        return value

    def note(self, setting: Setting, meaning: str) -> None:
        self.used.setdefault(setting.path, key_read(setting, meaning))

    def refused(self, setting: Setting, what: str, hint: str) -> BadInput:
        place = f"{self.config.name}, line {setting.line}"
        return BadInput(f"{place}: `{dotted(setting.path)}` is {what}", hint=hint)

    def not_understood(self) -> Iterator[ConfigKey]:
        """The settings that were not read and may take memory for all that is known."""
        for one in self.config.settings:
            is_read = one.path in self.used or OTHER_MODELS & set(one.path)
            words = [part for part in one.path if isinstance(part, str)]
            harmless = any(NO_GPU_MEMORY.search(word) for word in words)
            if not (is_read or harmless) and self.text(one):
                yield key_read(one, "")


def key_read(one: Setting, meaning: str) -> ConfigKey:
    value = "" if one.kind in ("list", "map") else one.text.strip()[:80]
    return ConfigKey(key=dotted(one.path), line=one.line, value=value, meaning=meaning)
