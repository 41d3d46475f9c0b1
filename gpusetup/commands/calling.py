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

from gpusetup.commands.parser import Parser, command, parser_of, refuse_misplaced, refuse_pages
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
    options = question(name, values)
    try:
        module = command(name)
        getattr(module, "caught", module.run)(options, catcher)
    except GpuSetupError as problem:
        _hide(problem)
        raise
    except Exception as problem:
        fault = GpuSetupError(
            f"gpusetup itself failed: {type(problem).__name__}: {problem}",
            hint="please report it with the traceback",
        )
        _hide(fault)
        raise fault from problem
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


def question(name: str, values: Mapping[str, object]) -> argparse.Namespace:
    """The options of a command with these values, each checked as if it were typed.

    Raises TypeError for a value that is none of what its option takes.
    """
    parser = parser_of(name)
    options: argparse.Namespace = parser.parse_args([])
    try:
        for key, value in values.items():
            if key == "report" or (key == "machine" and isinstance(value, Snapshot | Path)):
                _hold(options, key, value)
            elif value is not None:
                _take(parser, options, key, value)
        refuse_misplaced(parser, options)
    except argparse.ArgumentError as problem:
        parser.error(str(problem))
    except GpuSetupError as problem:
        _hide(problem)
        raise
    return options


def _hold(options: argparse.Namespace, key: str, value: Any) -> None:
    """What no word can say: a snapshot, the path of one's file, the bytes of a report."""
    from gpusetup.probe.saved import load_snapshot

    if key != "machine":
        options.report = value
        return
    if isinstance(value, Path):
        refuse_pages([str(value)])
        value = load_snapshot(value)
    options.machine_from = value


def _take(parser: Parser, options: argparse.Namespace, key: str, value: Any) -> None:
    option = option_of(key)
    action = options_of(parser.prog.partition(" ")[2])[option]
    kind = kind_of(action)
    can_be_no = isinstance(action, argparse.BooleanOptionalAction)
    if isinstance(value, bool) and (kind == "boolean" or can_be_no):
        if value or can_be_no:
            action(parser, options, None, action.option_strings[not value])
        return
    one_text = kind != "strings" or isinstance(value, str | Path)
    each = [value] if one_text else value if isinstance(value, Sequence) else [None]
    kinds = {"integer": (str, Path, Real), "boolean": ()}.get(kind, (str, Path))
    if not all(isinstance(one, kinds) and not isinstance(one, bool) for one in each):
        raise TypeError(f"`{key}` is {KINDS[kind]}, not {type(value).__name__}")
    if key == "machine" and value == "list":
        raise UsageError("`list` is no machine", hint="`gpusetup doctor --from list` lists them")
    texts = [str(one) for one in each]
    refuse_pages([f"{option}={text}" for text in texts])
    found = [parser._get_value(action, text) for text in texts]
    for one in found:
        parser._check_value(action, one)
    for one in [found] if action.nargs in ("*", "+") else found:
        action(parser, options, one, option)


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


def _hide(problem: GpuSetupError) -> None:
    """Take passwords out of what it says."""
    problem.message, problem.hint = told(problem)
    problem.args = (problem.message,)
