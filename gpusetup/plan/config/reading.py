"""Asking a config by role: numbers in range, switches, words; each answer is written down."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpusetup.configs.config import Config
from gpusetup.configs.keys import Key, key_of
from gpusetup.configs.settings import NOTHING, Path, Setting, in_words, name_of, truth, whole
from gpusetup.configs.values import NO_MEMORY
from gpusetup.errors import BadInput
from gpusetup.model.documents import ConfigKey
from gpusetup.model.frozen import replace

ELSEWHERE = frozenset((
    "rollout", "rollout_model", "ref", "critic", "reward_model", "auxiliary_models", "teacher",
    "explorer", "inference",
))  # fmt: skip
"""A key under one of these is about another model than the one that is trained."""

MARK = re.compile(r"(?:&\S+\s+)?")
TAG = re.compile(r"(?:&\S+\s+)?(!\S*)")
VARIABLE = re.compile(r"\$\{oc\.env:\s*([\w.]+)\s*(?:,\s*(.*?)\s*)?\}")
DECODED = re.compile(r"\$\{oc\.decode:\s*(.*)\}")
REFERENCE = re.compile(r"\$\{([\w.]+)\}")
DEEPEST_REFERENCE = 8


class Reader:
    """One config, and what was read of it so far."""

    def __init__(self, config: Config, variables: Mapping[str, str]) -> None:
        self.config = config
        self.variables = variables
        self.by_role: dict[str, list[tuple[Setting, Key]]] = {}
        self.by_path: dict[Path, Setting] = {}
        self.used: dict[tuple[int, Path], ConfigKey] = {}
        self.assumed: list[str] = []
        for one in config.settings:
            self.by_path.setdefault(one.path, one)
            self._sort(one)

    def _sort(self, one: Setting) -> None:
        _refuse_tag(self.config, one)
        key = key_of(one.path)
        if key is not None and not ELSEWHERE & set(one.path[:-1]):
            self.by_role.setdefault(key.role, []).append((one, key))

    # --- asking -----------------------------------------------------------------------------------

    def all(self, role: str) -> Iterator[tuple[Setting, str]]:
        """Each setting of a role that says something, with its text."""
        for setting, _ in self.by_role.get(role, ()):
            text = self.text(setting)
            if text is not None:
                yield setting, text

    def word(self, role: str, *, name: str | None = None) -> tuple[Setting, str] | None:
        """The first that says something; of one name where that is given."""
        found = (one for one in self.all(role) if name in (None, name_of(one[0].path)))
        return next(found, None)

    def number(self, role: str, most: int) -> int | None:
        """The first whole number of a role; `BadInput` with its place where it is out of range."""
        for setting, text in self.all(role):
            plain = text.replace("_", "")
            if re.fullmatch(r"[+-]?\d{19,}", plain):
                raise self.refused(setting, f"a number of {len(plain)} digits", f"1 to {most:,}")
            value = whole(replace(setting, kind="scalar", text=plain))
            if value is None or value in (0, -1):
                continue
            if not 1 <= value <= most:
                raise self.refused(setting, f"{value}: out of range", f"1 to {most:,}")
            self.note_all(role, text, f"{role} {value}")
            return value
        return None

    def switch(self, role: str) -> bool | None:
        """The first switch of a role."""
        for setting, text in self.all(role):
            value = truth(replace(setting, kind="scalar", text=text))
            if value is not None:
                self.note(setting, f"{role} {'on' if value else 'off'}")
                return value
        return None

    def names(self, role: str) -> frozenset[str]:
        """The words of a list, or of a text with commas."""
        found: set[str] = set()
        for setting, _ in self.by_role.get(role, ()):
            inner = [one for path, one in self.by_path.items() if path[:-1] == setting.path]
            texts = [self.text(one) for one in ([setting] if setting.kind != "list" else inner)]
            words = [word.strip() for text in texts if text for word in text.split(",")]
            if words:
                found |= set(words)
                self.note(setting, f"{role}: {', '.join(words)}")
                for one in inner:
                    self.note(one, role)
        return frozenset(found)

    # --- text -------------------------------------------------------------------------------------

    def text(self, setting: Setting, depth: int = 0) -> str | None:
        """A scalar without quotes and anchors, its variables replaced; None where it is empty."""
        if setting.kind in ("list", "map"):
            return None
        bare = MARK.sub("", setting.text, count=1).strip().strip("'\"")
        if bare in NOTHING or bare in ("auto", "???"):
            return None
        return self._resolved(setting, bare, depth) if "${" in bare else bare

    def _resolved(self, setting: Setting, text: str, depth: int) -> str | None:
        """OmegaConf's variables: one of the environment or its default, the setting referred to."""
        decoded = DECODED.fullmatch(text)
        variable = VARIABLE.fullmatch(decoded[1] if decoded else text)
        if variable:
            is_set = self.variables.get(variable[1])
            default = (variable[2] or "").strip("'\"")
            if is_set:
                self.assumed.append(
                    f"{in_words(setting.path)} takes the variable {variable[1]}, which is set: "
                    f"{is_set} was read"
                )
                return is_set
            if default in NOTHING:
                self.assumed.append(
                    f"{in_words(setting.path)} takes the variable {variable[1]}, which has no "
                    "default: it was not read"
                )
                return None
            self.assumed.append(
                f"{in_words(setting.path)} takes the variable {variable[1]}: its default "
                f"{default} was read"
            )
            return default
        reference = REFERENCE.fullmatch(text)
        other = self.by_path.get(tuple(reference[1].split("."))) if reference else None
        if other is None:
            return None
        if depth >= DEEPEST_REFERENCE:
            raise self.refused(setting, "refers to itself", "write the value there")
        return self.text(other, depth + 1)

    # --- what becomes of it ---------------------------------------------------------------------

    def note(self, setting: Setting, meaning: str) -> None:
        value = "" if setting.kind in ("list", "map") else setting.text.strip()[:80]
        self.used.setdefault(
            (setting.document, setting.path),
            ConfigKey(key=in_words(setting.path), line=setting.line, value=value, meaning=meaning),
        )

    def note_all(self, role: str, text: str, meaning: str) -> None:
        """Every setting of a role that says the same."""
        for setting, other in self.all(role):
            if other == text:
                self.note(setting, meaning)

    def refused(self, setting: Setting, what: str, hint: str) -> BadInput:
        place = f"{self.config.name}, line {setting.line}"
        return BadInput(f"{place}: `{in_words(setting.path)}` is {what}", hint=hint)

    def not_understood(self) -> tuple[ConfigKey, ...]:
        """The settings that were not read and may take memory for all that is known."""
        return tuple(
            ConfigKey(
                key=in_words(one.path), line=one.line, value=one.text.strip()[:80], meaning=""
            )
            for one in self.config.settings
            if one.kind in ("scalar", "alias")
            and (one.document, one.path) not in self.used
            and self.text(one) is not None
            and not ELSEWHERE & set(one.path)
            and not any(NO_MEMORY.search(part) for part in one.path if isinstance(part, str))
        )


def _refuse_tag(config: Config, one: Setting) -> None:
    """`BadInput` for a tag, which would make an object of the text, and for a cycle."""
    if config.format != "yaml":
        return
    place = f"{config.name}, line {one.line}"
    tag = TAG.match(config.text, one.start) if one.kind != "alias" else None
    if tag:
        raise BadInput(
            f"{place}: the tag `{tag[1][:60]}`", hint="a config has plain values: leave the tag out"
        )
    if one.kind == "alias" and _around(config, one):
        raise BadInput(f"{place}: `{in_words(one.path)}` contains itself", hint="write it out")


def _around(config: Config, alias: Setting) -> bool:
    """Whether an alias stands inside of what it names."""
    parents = {alias.path[:n] for n in range(len(alias.path))}
    return any(
        one.start == alias.start and one.path in parents and one.document == alias.document
        for one in config.settings
        if one.kind in ("map", "list")
    )
