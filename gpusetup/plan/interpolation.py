"""Resolves references in config values: OmegaConf's `${...}` and the shell's variables.

OmegaConf 2.3 has references (`${model.path}`, `${.path}` in the same map, `${..path}` one map
higher) and resolvers: `oc.env` (an environment variable with an optional default), `oc.decode`
(parses a text as a value), `oc.select` (a reference with a default). Hydra's old `env:NAME` and the
shell's `${NAME:-default}` also stand for a variable. All of these can be nested. Other resolvers
are code of the user's project, which we never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from gpusetup.configs.settings import EMPTY, Path

MOST_DEPTH = 16
"""The limit on nested references, because a config that refers to itself would never end."""
MOST_PARTS = 200
"""The limit on `${...}` parts in one value. Without this limit, a chain of values that each name
the next value twice would grow exponentially."""
SHELL_DEFAULT = re.compile(r"([A-Za-z_]\w*):-(.*)", re.DOTALL)


class Variable(NamedTuple):
    """An environment variable that a config value refers to."""

    name: str
    is_set: bool
    value: str | None
    """The variable's value, otherwise the default that the reference gives; None if there is
    neither."""

    @property
    def in_words(self) -> str:
        """Part of a sentence for the answer: the variable, whether it is set, and which value was
        read."""
        set_or_not = "set" if self.is_set else "not set"
        nothing = "nothing was read, and OmegaConf stops there: export the variable"
        outcome = f"{self.value} was read" if self.value else nothing
        return f"the variable {self.name}, which is {set_or_not}: {outcome}"


class Interpolation:
    """Resolves references in the values of one config, and records the environment variables that
    they use."""

    def __init__(self, text_at: Callable[[Path], str | None], variables: Mapping[str, str]) -> None:
        """`text_at` returns the scalar at a path of the config as written, or None; `variables` are
        the environment variables."""
        self.text_at = text_at
        self.variables = variables
        self.asked: list[Variable] = []
        self._parts = 0

    def resolve(self, text: str, path: Path, depth: int = 0) -> str | None:
        """The text with every `${...}` replaced by its value; None if one of them cannot be
        resolved.

        `path` is the path of the text's key, which relative references start from.

        >>> values = Interpolation(lambda path: None, {"FACTOR": "2.0"})
        >>> values.resolve("${oc.decode:${oc.env:FACTOR}}", ("factor",))
        '2.0'
        >>> values.resolve("${oc.env:OWNER,Qwen}/${oc.env:NAME,Qwen3-8B}", ("model",))
        'Qwen/Qwen3-8B'
        """
        if depth == 0:
            self._parts = 0
        if depth > MOST_DEPTH:
            return None
        resolved = ""
        unread = text
        while "${" in unread:
            self._parts += 1
            if self._parts > MOST_PARTS:
                return None
            literal, _, after = unread.partition("${")
            body_length = closing_brace(after)
            if body_length is None:
                return None
            body = after[:body_length].strip()
            value = self._body(body, path, depth + 1)
            if value is None:
                return None
            resolved += literal + value
            # Skip the closing brace.
            unread = after[body_length + 1 :]
        return resolved + unread

    def _body(self, body: str, path: Path, depth: int) -> str | None:
        """The value of the expression between `${` and `}`; None if it cannot be resolved."""
        shell = SHELL_DEFAULT.fullmatch(body)
        if shell:
            default = self.resolve(shell[2], path, depth)
            return self._variable(shell[1], default)
        resolver, colon, argument_text = body.partition(":")
        if not colon:
            return self._reference(body, path, depth)
        arguments = [
            unquoted_value(self.resolve(argument, path, depth))
            for argument in split_arguments(argument_text)
        ]
        # The supported resolvers take one argument and perhaps a default.
        argument, default, *_ = (*arguments, None, None)
        if resolver == "oc.decode":
            return argument
        if argument is None:
            return None
        if resolver in ("oc.env", "env"):
            return self._variable(argument, default)
        if resolver == "oc.select":
            return self._reference(argument, path, depth) or default
        return None

    def _reference(self, body: str, path: Path, depth: int) -> str | None:
        """The value of another key in the config, named by its path from the top or relative to
        `path`; None if there is none."""
        target = path_of_reference(body, path)
        text = self.text_at(target)
        if text is None:
            return None
        value = self.resolve(text, target, depth)
        return unquoted_value(value)

    def _variable(self, name: str, default: str | None) -> str | None:
        """The value of an environment variable, or the default if it is not set or empty."""
        set_value = self.variables.get(name) or None
        value = set_value or default
        self.asked.append(Variable(name, set_value is not None, value))
        return value


def path_of_reference(body: str, path: Path) -> Path:
    """The absolute path of the key that a reference names; leading dots make the reference relative
    to `path`.

    >>> path_of_reference("model.layers[0]", ("a",)), path_of_reference(".name", ("model", "path"))
    (('model', 'layers', 0), ('model', 'name'))
    """
    names = re.findall(r"[^.\[\]\s]+", body)
    target: Path = tuple(int(name) if name.isdigit() else name for name in names)
    dots = len(body) - len(body.lstrip("."))
    if dots == 0:
        return target
    # One dot means the map that contains the key; each further dot goes one map higher.
    maps = max(len(path) - dots, 0)
    return path[:maps] + target


def closing_brace(text: str) -> int | None:
    """The position of the brace that closes an expression; None if it is not closed.

    >>> closing_brace("oc.env:A,${b}} and more")
    13
    """
    depth = 1
    for position, letter in enumerate(text):
        if letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
        if depth == 0:
            return position
    return None


def split_arguments(text: str) -> Iterator[str]:
    """The arguments of a resolver, split at the commas that are outside quotes and brackets.

    >>> list(split_arguments("MODEL, 'a, b', ${oc.env:X,1}"))
    ['MODEL', "'a, b'", '${oc.env:X,1}']
    """
    argument = ""
    depth = 0
    quote = ""
    for letter in text:
        if quote:
            # Inside quotes, only the closing quote has a meaning.
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
        splits = letter == "," and depth == 0 and not quote
        if splits:
            yield argument.strip()
            argument = ""
        else:
            argument += letter
    yield argument.strip()


def unquoted_value(text: str | None) -> str | None:
    """A scalar without its quotes; None if it is empty or null (`null`, `~`)."""
    bare = (text or "").strip().strip("'\"")
    return None if bare in EMPTY else bare
