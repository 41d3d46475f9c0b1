"""A command asked from Python: named values become its options, and its document comes back.

The options of the command's parser are the one record of what it takes: names, types, choices and
help of the Python API and of the assistants' tools come from them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

from gpusetup.commands.parser import command, parser_of, read_words
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.machine import Snapshot
from gpusetup.render.console import Console, told

Notify = Callable[[str], None]
OPTIONS = {"machine": "--from", "architecture": "--machine", "with_packages": "--with"}
"""A name in Python -> its option, where that is another: `from` and `with` are words of Python."""


class Catcher(Console):
    """Keeps the document of an answer; neither stdout nor stderr is touched."""

    def __init__(self, notify: Notify) -> None:
        self.json, self.color, self.verbose = True, False, False
        self.output = None
        self.document: object = None
        self._notify = notify

    def talk(self, text: str) -> None:
        self._notify(text)

    tell = talk

    def answer(self, document: object, text: object = None) -> None:
        self.document = document

    def _write(self, text: str) -> None:
        """What is no document is for a screen."""


def answered(
    name: str,
    values: Mapping[str, object],
    packages: Iterable[str] = (),
    notify: Notify | None = None,
) -> object:
    """The document with which a command answers.

    Raises GpuSetupError, as the command line would print it; a fault of our own too (exit 5).
    TypeError is for values of a type that no option takes.
    """
    words = words_of(name, values, packages)
    catcher = Catcher(notify or (lambda _: None))
    try:
        kept = dict(held(values))
        options, module = read_words(words)[1], command(name)
        vars(options).update(kept)
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


def held(values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What no word can say: a snapshot, the path of one's file, the bytes of a report."""
    from gpusetup.probe.saved import load_snapshot

    machine, report = values.get("machine"), values.get("report")
    if machine == "list":
        raise UsageError("`list` is no machine", hint="`gpusetup doctor --from list` lists them")
    if isinstance(machine, Path):
        machine = load_snapshot(machine)
    if isinstance(machine, Snapshot):
        yield "machine_from", machine
    if report is not None:
        yield "report", report


@cache
def options_of(command: str) -> Mapping[str, argparse.Action]:
    """A command's options by their words."""
    known: Mapping[str, argparse.Action] = parser_of(command)._option_string_actions
    return known


def option_of(key: str) -> str:
    """The option of a name in Python.

    >>> option_of("for_gpu"), option_of("machine")
    ('--for-gpu', '--from')
    """
    return OPTIONS.get(key, f"--{key.replace('_', '-')}")


def words_of(name: str, values: Mapping[str, object], packages: Iterable[str] = ()) -> list[str]:
    """Named values as words; each stands in one word with its option, so that none is an option.

    Raises TypeError for a value that is none of what its option takes.
    """
    words = [name]
    for key, value in values.items():
        if value is not None and key != "report":
            words += _spelled(key, value, options_of(name))
    for package in packages:
        if not isinstance(package, str):
            raise TypeError(f"a package is a text, not {type(package).__name__}")
        if package.startswith("-"):
            raise UsageError(f"{package!r} is no package")
        words.append(package)
    return words


def _spelled(key: str, value: Any, known: Mapping[str, argparse.Action]) -> list[str]:
    option = option_of(key)
    kind = kind_of(known.get(option))
    no = f"--no-{option[2:]}"
    if isinstance(value, bool) and (kind == "boolean" or no in known):
        return [option] if value else [no] * (no in known)
    if key == "machine" and isinstance(value, Snapshot | Path):
        if "\0" in str(value):
            raise UsageError("the path of a machine has a NUL character in it")
        return []
    each = [value] if kind != "strings" or isinstance(value, str | Path) else value
    if not isinstance(each, Sequence) or isinstance(each, bytes):
        each = [None]
    for one in each:
        number = isinstance(one, Real) and not isinstance(one, bool) and kind == "integer"
        if kind == "boolean" or not (number or isinstance(one, str | Path)):
            raise TypeError(f"`{key}` is {KINDS[kind]}, not {type(value).__name__}")
    return [f"{option}={one}" for one in each]


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
