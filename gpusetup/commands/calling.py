"""A command asked from Python: named values become its options, and its document comes back.

The options of the command's parser are the one record of what it takes: names, types, choices and
help of the Python API and of the assistants' tools come from them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

from gpusetup.commands.parser import command, parser_of, refuse_values
from gpusetup.errors import GpuSetupError, own_fault
from gpusetup.model.machine import Snapshot
from gpusetup.render.console import Console, shareable

Notify = Callable[[str], object]
OPTIONS = {"machine": "--from", "architecture": "--machine", "with_packages": "--with"}
"""A name in Python -> its option, where that is another: `from` and `with` are words of Python."""


class Catcher(Console):
    """Keeps the document of an answer; neither stdout nor stderr is touched."""

    def __init__(self, notify: Notify) -> None:
        self.json, self.color, self.verbose, self.output = True, False, False, None
        self.document: object = None
        self._notify = notify

    def talk(self, text: str) -> None:
        self._notify(text)

    tell = talk

    def answer(self, document: object, text: object = "", *, yes: object = True) -> int:
        self.document = document
        return 0

    def script(self, text: str) -> None:
        """What is no document is for a screen."""


def answered(name: str, values: Mapping[str, object], notify: Notify | None = None) -> object:
    """The document with which a command answers.

    Raises GpuSetupError, as the command line would print it, without the passwords in what was
    typed; a fault of our own too (exit 5). TypeError is for values of a type that no option takes.
    """
    catcher, module = Catcher(notify or (lambda _: None)), command(name)
    try:
        options = question(name, values)
        try:
            getattr(module, "caught", module.run)(options, catcher)
        except Exception as problem:
            if isinstance(problem, GpuSetupError):
                raise
            raise own_fault(problem, "please report it with the traceback") from problem
    except GpuSetupError as problem:
        problem.message, problem.hint = shareable(problem)
        problem.args = (problem.message,)
        raise
    return catcher.document


@cache
def options_of(command: str) -> Mapping[str, argparse.Action]:
    """A command's options by their words, its positional arguments by their names."""
    actions = parser_of(command)._actions
    return {word: one for one in actions for word in one.option_strings or (f"--{one.dest}",)}


def option_of(key: str) -> str:
    """The option of a name in Python.

    >>> option_of("gpu_mem"), option_of("machine")
    ('--gpu-mem', '--from')
    """
    return OPTIONS.get(key, f"--{key.replace('_', '-')}")


def question(name: str, values: Mapping[str, Any]) -> argparse.Namespace:
    """The options of a command with these values, each checked as if it were typed.

    Raises TypeError for a value that is none of what its option takes.
    """
    asked = {key: value for key, value in values.items() if value is not None}
    held = {"report": asked.pop("report")} if "report" in asked else {}
    if isinstance(asked.get("machine"), Snapshot):
        held["machine_from"] = asked.pop("machine")
    parser, words = parser_of(name), words_of(name, asked)
    refuse_values(words)
    options: argparse.Namespace = parser.parse_args(words)
    vars(options).update(held)
    return options


KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a text", (str, Path)),
    "strings": ("a text, or a list of texts", (str, Path)),
    "integer": ("a number", (str, Path, Real)),
    "boolean": ("true or false", ()),
}
"""What an option takes -> what it is called, and what is taken for one of it."""


def words_of(name: str, values: Mapping[str, Any]) -> list[str]:
    """Values as the words that a person would type, the positional ones last."""
    known, words, last = options_of(name), [], []
    for key, value in values.items():
        option = option_of(key)
        if option not in known:
            raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
        kind = kind_of(known[option])
        if isinstance(value, bool) and kind == "boolean":
            words += [option] * value
            continue
        several = kind == "strings" and isinstance(value, Sequence) and not isinstance(value, str)
        each = [*value] if several else [value]
        what, types = KINDS[kind]
        if not all(isinstance(one, types) and not isinstance(one, bool) for one in each):
            raise TypeError(f"`{key}` is {what}, not {type(value).__name__}")
        if known[option].option_strings:
            words += [f"{option}={one}" for one in each]
        else:
            last += [str(one) for one in each]
    return [*words, "--", *last] if last else words


def kind_of(action: argparse.Action) -> str:
    """What an option takes: a key of `KINDS`. Of a version a number would lose digits: 2.10."""
    if action.nargs == 0:
        return "boolean"
    if isinstance(action, argparse._AppendAction) or action.nargs not in (None, "?"):
        return "strings"
    try:
        one = action.type("1") if callable(action.type) else ""
    except (ValueError, argparse.ArgumentTypeError, GpuSetupError):
        one = ""
    return "integer" if isinstance(one, int | float) else "string"
