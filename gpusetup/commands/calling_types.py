"""Which types the values of a call have: a wrong one is a TypeError, as anywhere in Python."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from numbers import Real
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gpusetup.commands.parser import build_parser, child_of
from gpusetup.model.machine import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = (bytes, bytearray, memoryview)
OPTIONS = {"machine": "--from", "architecture": "--machine", "with_packages": "--with"}
"""A name in Python -> its option, where that is another: `from` and `with` are words of Python."""


def option_of(key: str) -> str:
    """The option of a name in Python.

    >>> option_of("for_gpu"), option_of("machine")
    ('--for-gpu', '--from')
    """
    return OPTIONS.get(key, f"--{key.replace('_', '-')}")


@cache
def options_known(command: str) -> Mapping[str, argparse.Action]:
    """A command's options by their words."""
    known: Mapping[str, argparse.Action] = child_of(
        build_parser(command), command
    )._option_string_actions
    return known


def refuse_types(command: str, values: Mapping[str, object], words: Iterable[object]) -> None:
    """Raises TypeError for a value that is none of what its option takes; None stands for none."""
    known = options_known(command)
    for key, value in values.items():
        if value is not None and key != "report":
            what, is_right = taken(key, known.get(option_of(key)))
            if not is_right(value):
                raise TypeError(f"`{key}` is {what}, not {type(value).__name__}")
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"a package is a text, not {type(word).__name__}")


def taken(key: str, action: argparse.Action | None) -> tuple[str, Callable[[Any], bool]]:
    """What a keyword takes, in words and as a test."""
    if key == "machine":
        return "a name, a Path or a Snapshot", lambda value: isinstance(
            value, str | PurePath | Snapshot
        )
    if action is not None and action.nargs == 0:
        return "True or False", lambda value: isinstance(value, bool)
    if action is not None and not is_for_one(action):
        return "a collection of texts", is_each
    return "a text, a Path or a number", is_one


def is_for_one(action: argparse.Action) -> bool:
    return isinstance(action, argparse._StoreAction) and action.nargs in (None, "?")


def is_one(value: object) -> bool:
    """Whether a value is one word of a command line.

    >>> [is_one(value) for value in ("a", 5, 0.5, True, b"a", None, ["a"])]
    [True, True, True, False, False, False, False]
    """
    return isinstance(value, str | PurePath | Real) and not isinstance(value, bool)


def is_each(value: object) -> bool:
    """Whether a value is several words, or one.

    >>> [is_each(value) for value in (["a"], {"a": 1}, "a", [None], b"a")]
    [True, True, True, False, False]
    """
    if is_one(value):
        return True
    if not isinstance(value, Collection) or isinstance(value, BYTES):
        return False
    return all(is_one(one) for one in value)
