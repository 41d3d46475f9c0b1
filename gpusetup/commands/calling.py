"""Calls a command from Python: checks its options and returns its document."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from gpusetup.commands.parser import command, read_words, refuse_values
from gpusetup.commands.question import CommandQuestion, parts
from gpusetup.commands.reply import Reply
from gpusetup.errors import GpuSetupError, own_fault
from gpusetup.render.console import Console, shareable

TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a text", (str, Path)),
    "strings": ("a text, or a list of texts", (str, Path)),
    "number": ("a number", (str, Path, Real)),
    "boolean": ("true or false", (bool,)),
}
"""Maps a JSON type to its name in messages and to the Python types that are accepted for it.

An option for text does not accept a number: as a float, version 2.10 would lose its zero.
"""


class SilentConsole(Console):
    """A console that writes nothing to stdout or stderr: messages go to the logger `gpusetup`."""

    def talk(self, text: str) -> None:
        logging.getLogger("gpusetup").info("%s", text)


def answered(name: str, values: Mapping[str, Any]) -> object:
    """The document that a command prints for these option values; None means that the option is not
    given. Raises the GpuSetupError that the command line would print, with passwords from the
    options removed from its text. For a bug in gpusetup, the error has exit code 5. Raises
    TypeError for an unknown option, and for a value of a type that its option does not accept."""
    module = command(name)
    # verify's `run` prints the answer itself, so it has a second function, which returns it.
    ask = getattr(module, "ask_from_python", module.run)
    given = {field: value for field, value in values.items() if value is not None}
    try:
        question = _question_of(name, module.Question, given)
        try:
            reply = ask(question, SilentConsole(json=True, color=False))
        except GpuSetupError:
            raise
        except Exception as problem:
            raise own_fault(problem, "please report it with the traceback") from problem
    except GpuSetupError as problem:
        problem.message, problem.hint = shareable(problem)
        problem.args = (problem.message,)  # what `repr` shows
        raise
    return reply.document if isinstance(reply, Reply) else reply


def _question_of(name: str, kind: type[CommandQuestion], given: dict[str, Any]) -> CommandQuestion:
    """The question with these values, each parsed as if it had been typed."""
    passed: dict[str, Any] = {}
    for field, value in given.items():
        spec = kind.OPTIONS.get(field)
        if spec is None:
            raise TypeError(f"{name}() got an unexpected keyword argument {field!r}")
        if isinstance(value, spec.as_it_is):
            passed[field] = value
            continue
        in_words, types = TYPES[spec.json_type]
        for part in parts(value) if spec.json_type == "strings" else (value,):
            if not isinstance(part, types):
                raise TypeError(f"`{field}` is {in_words}, not {type(value).__name__}")
    # The parser cannot read a value such as a snapshot, but checks whether it may be given together
    # with the other options. So give it some word, which `replaced` then replaces.
    words = kind(**{**given, **dict.fromkeys(passed, "passed")}).words()
    # `read_words` does not check the words after `--`, which are positional arguments here.
    refuse_values(words)
    _, parsed = read_words([*name.split(), *words])
    return kind.typed(parsed).replaced(**passed)  # type: ignore[no-any-return]
