"""A command asked from Python: named values become its options, and its document comes back.

What is asked, checked and answered is what the command line asks, checks and answers: the values
are read by the command's own parser, and its `run` answers into a `Catcher`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from gpusetup.commands.calling_types import (
    option_of,
    options_known,
    refuse_types,
    refuse_unwritable,
)
from gpusetup.commands.parser import command, read_words
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.machine import Snapshot
from gpusetup.render.console import Console, told

Notify = Callable[[str], None]


class Catcher(Console):
    """Keeps the document of an answer; neither stdout nor stderr is touched."""

    def __init__(self, notify: Notify) -> None:
        self.json, self.color, self.verbose = True, False, False
        self.output = None
        self.document: object = None
        self._notify = notify

    def talk(self, text: str) -> None:
        self._notify(text)

    def answer(self, document: object, text: object = None) -> None:
        self.document = document

    def _write(self, text: str) -> None:
        """What is no document is for a screen."""


def answered(
    name: str,
    values: Mapping[str, object],
    words: Iterable[str] = (),
    notify: Notify | None = None,
) -> object:
    """The document with which a command answers.

    Raises GpuSetupError, as the command line would print it; a fault of our own too (exit 5).
    TypeError is for values of a type that no option takes.
    """
    words = tuple(words)
    refuse_types(name, values, words)
    refuse_unwritable(values, words)
    catcher = Catcher(notify or (lambda _: None))
    try:
        options, module = asked(name, values, words), command(name)
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


def asked(name: str, values: Mapping[str, object], words: Iterable[str] = ()) -> argparse.Namespace:
    """Named values as the options of a command, checked as its parser checks them.

    `machine` may be a snapshot, or the path of one's file, beside a name; a report is its bytes.
    """
    given = {key: value for key, value in values.items() if value is not None}
    held = {"machine_from": _snapshot(given), "report": given.get("report")}
    said = {key: value for key, value in given.items() if key not in ("machine", "report")}
    if held["machine_from"] is None and "machine" in given:
        said["machine"] = _name(given["machine"])
    options = read_words([name, *_spelled(name, said), *map(_package, words)])[1]
    for key, value in held.items():
        if value is not None:
            setattr(options, key, value)
    return options


def _snapshot(given: Mapping[str, object]) -> Snapshot | None:
    from gpusetup.probe.saved import load_snapshot

    machine = given.get("machine")
    if isinstance(machine, Path) and "\0" not in str(machine):
        return load_snapshot(machine)
    return machine if isinstance(machine, Snapshot) else None


def _name(machine: object) -> str:
    if machine == "list":
        raise UsageError("`list` is no machine", hint="`gpusetup doctor --from list` lists them")
    return str(machine)


def _package(word: str) -> str:
    """A word that is no option, whoever wrote it."""
    if word.startswith("-"):
        raise UsageError(f"{word!r} is no package")
    return word


def _spelled(name: str, values: Mapping[str, object]) -> Iterator[str]:
    """The values as words; each stands in one word with its option, so that none is an option."""
    known = options_known(name)
    for key, value in values.items():
        option = option_of(key)
        if isinstance(value, bool):
            without = f"--no-{option[2:]}"
            yield from (option,) if value else (without,) if without in known else ()
        else:
            yield from (f"{option}={one}" for one in _each(value))


def _each(value: object) -> Iterable[object]:
    """The values of a collection; a text is one."""
    return value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _hide(problem: GpuSetupError) -> None:
    """Take passwords out of what it says."""
    problem.message, problem.hint = told(problem)
    problem.args = (problem.message,)
