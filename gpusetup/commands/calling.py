"""A command asked from Python: named values become its options, and its document comes back.

The options of the command's parser are the one record of what it takes: names, types, choices and
help of the Python API and of the assistants' tools come from them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

from gpusetup.commands.parser import command, parser_of, refuse_misplaced, refuse_pages
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.machine import Snapshot
from gpusetup.render.console import Console, told

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

    def answer(self, document: object, text: object = None) -> None:
        self.document = document

    def _write(self, text: str) -> None:
        """What is no document is for a screen."""


def answered(name: str, values: Mapping[str, object], notify: Notify | None = None) -> object:
    """The document with which a command answers.

    Raises GpuSetupError, as the command line would print it; a fault of our own too (exit 5).
    TypeError is for values of a type that no option takes.
    """
    catcher = Catcher(notify or (lambda _: None))
    with _without_secrets():
        options, module = question(name, values), command(name)
        try:
            getattr(module, "caught", module.run)(options, catcher)
        except GpuSetupError:
            raise
        except Exception as problem:
            failed = f"gpusetup itself failed: {type(problem).__name__}: {problem}"
            hint = "please report it with the traceback"
            raise GpuSetupError(failed, hint=hint) from problem
    return catcher.document


@contextmanager
def _without_secrets() -> Iterator[None]:
    """An error leaves without the passwords in what was typed."""
    try:
        yield
    except GpuSetupError as problem:
        problem.message, problem.hint = told(problem)
        problem.args = (problem.message,)
        raise


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


def question(name: str, values: Mapping[str, object]) -> argparse.Namespace:
    """The options of a command with these values, each checked as if it were typed.

    Raises TypeError for a value that is none of what its option takes.
    """
    parser, held, words = parser_of(name), {}, []
    for key, value in values.items():
        if key == "report":
            held["report"] = value
        elif isinstance(value, Snapshot):
            held["machine_from"] = value
        elif value == "list" and key == "machine":
            raise UsageError("`list` is no machine", hint="`gpusetup doctor --from list`")
        elif value is not None and key != "packages":
            words += typed(name, key, value)
    if packages := values.get("packages"):
        words += ["--", *typed(name, "packages", packages)]
    refuse_pages(words)
    options: argparse.Namespace = parser.parse_args(words)
    refuse_misplaced(parser, options)
    vars(options).update(held)
    return options


def typed(name: str, key: str, value: Any) -> list[str]:
    """A value as the words that a person would type."""
    option, known = option_of(key), options_of(name)
    kind, no = kind_of(known[option]), f"--no-{option[2:]}"
    if isinstance(value, bool) and (kind == "boolean" or no in known):
        return [option] if value else [no] * (no in known)
    several = kind == "strings" and isinstance(value, Sequence) and not isinstance(value, str)
    kinds = {"integer": (str, Path, Real), "boolean": ()}.get(kind, (str, Path))
    each = [*value] if several else [value]
    if not all(isinstance(one, kinds) and not isinstance(one, bool) for one in each):
        raise TypeError(f"`{key}` is {KINDS[kind]}, not {type(value).__name__}")
    return [f"{option}={one}" if known[option].option_strings else str(one) for one in each]


KINDS = {
    "string": "a text",
    "strings": "a text, or a list of texts",
    "integer": "a number",
    "boolean": "true or false",
}
"""What an option takes -> what it is called."""


def kind_of(action: argparse.Action | None) -> str:
    """What an option takes: a key of `KINDS`. Of a version a number would lose digits: 2.10."""
    if action is None:
        return "string"
    if action.nargs == 0:
        return "boolean"
    if isinstance(action, argparse._AppendAction) or action.nargs not in (None, "?"):
        return "strings"
    try:
        one = action.type("1") if callable(action.type) else ""
    except (ValueError, argparse.ArgumentTypeError, GpuSetupError):
        one = ""
    return "integer" if isinstance(one, int | float) else "string"
