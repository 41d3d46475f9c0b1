"""Which types the values of a call have: a wrong one is a TypeError, as anywhere in Python."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping, Set
from functools import cache
from numbers import Real
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gpusetup.commands.parser import build_parser, child_of
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.machine import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = (bytes, bytearray, memoryview)
LONGEST_SHOWN = 60
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
    if isinstance(action, argparse.BooleanOptionalAction):
        return "True, False or a text", lambda value: isinstance(value, bool) or is_text(value)
    if action is not None and not is_for_one(action):
        return "a list of texts", is_each
    if action is not None and is_for_a_number(action):
        return "a number or a text", lambda value: is_number(value) or is_text(value)
    return "a text or a Path", is_text


def is_for_one(action: argparse.Action) -> bool:
    return isinstance(action, argparse._StoreAction) and action.nargs in (None, "?")


def is_for_a_number(action: argparse.Action) -> bool:
    """Whether an option reads a number; of a version a float would lose digits: 2.10 is 2.1."""
    if action.type is None or isinstance(action.type, str):
        return False
    try:
        return is_number(action.type("1"))
    except (ValueError, argparse.ArgumentTypeError, GpuSetupError):
        return False


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def is_text(value: object) -> bool:
    return isinstance(value, str | PurePath)


def is_each(value: object) -> bool:
    """Whether a value is several words in their order, or one.

    >>> [is_each(value) for value in (["a"], "a", {"a": 1}, {"a"}, [2.5], [None], b"a")]
    [True, True, False, False, False, False, False]
    """
    if is_text(value):
        return True
    if not isinstance(value, Collection) or isinstance(value, (*BYTES, Mapping, Set)):
        return False
    return all(is_text(one) for one in value)


def refuse_unwritable(values: Mapping[str, object], words: Iterable[str]) -> None:
    """Raises UsageError for a text that no file's name, no option and no line can hold.

    >>> refuse_unwritable({"torch": "2.5", "model": ["a/b"]}, ["vllm"])
    """
    asked = {key: value for key, value in values.items() if key != "report"}
    for key, value in (*asked.items(), ("a package", tuple(words))):
        several = value if isinstance(value, Collection) and not is_text(value) else (value,)
        for one in filter(is_text, several):
            if not is_writable(str(one)):
                raise UsageError(
                    f"`{key}` has a character that no text has: {ascii(str(one))[:LONGEST_SHOWN]}",
                    hint="a NUL, or half of a character of two (a lone surrogate)",
                )


def is_writable(text: str) -> bool:
    """Whether a text can stand in a file's name; bytes that are no UTF-8 can.

    >>> [is_writable(text) for text in ("a", "a\\udcff", "a\\0b", "\\ud800")]
    [True, True, False, False]
    """
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
