"""A machine on tape: all that was asked of it and answered, kept and played again anywhere."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gpusetup.model.frozen import Record
from gpusetup.system.processes import Output
from gpusetup.system.system import Family, Space, Stat, System

T = TypeVar("T")


class Tape(Record):
    """Everything that was asked of one machine, and its answers; plain enough for JSON."""

    family: Family = "linux"
    facts: dict[str, Any] = {}
    read: dict[str, str | int] = {}
    """Path -> text, or the errno with which it failed."""
    list: dict[str, tuple[str, ...] | int] = {}
    stat: dict[str, Stat | int] = {}
    link: dict[str, str | int] = {}
    space: dict[str, Space | int] = {}
    environ: dict[str, str] = {}
    which: dict[str, str | None] = {}
    run: dict[str, Output] = {}
    """Keyed by the argument list joined with blanks."""
    ask: dict[str, dict[str, Any]] = {}
    """Keyed by the script, then python and arguments where given, joined with blanks."""


class RecordingSystem:
    """Passes every question on and keeps it with its answer on a tape, from any thread."""

    def __init__(self, inner: System) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.tape = Tape(family=inner.family)

    @property
    def family(self) -> Family:
        return self._inner.family

    def facts(self) -> Mapping[str, Any]:
        self.tape.facts = dict(self._inner.facts())
        return self.tape.facts

    def read(self, path: str) -> str:
        return self._file(self.tape.read, path, self._inner.read)

    def list(self, path: str) -> tuple[str, ...]:
        return self._file(self.tape.list, path, self._inner.list)

    def stat(self, path: str) -> Stat:
        return self._file(self.tape.stat, path, self._inner.stat)

    def link(self, path: str) -> str:
        return self._file(self.tape.link, path, self._inner.link)

    def space(self, path: str) -> Space:
        return self._file(self.tape.space, path, self._inner.space)

    def environ(self) -> Mapping[str, str]:
        self.tape.environ = dict(self._inner.environ())
        return self.tape.environ

    def which(self, name: str) -> str | None:
        return self._keep(self.tape.which, name, self._inner.which(name))

    def run(self, argv: Sequence[str], timeout: float) -> Output:
        return self._keep(self.tape.run, " ".join(argv), self._inner.run(argv, timeout))

    def ask(
        self,
        script: str,
        python: str | None = None,
        arguments: Sequence[str] = (),
        timeout: float = 10,
    ) -> Mapping[str, Any]:
        answer = self._inner.ask(script, python, arguments, timeout)
        return self._keep(self.tape.ask, ask_key(script, python, arguments), dict(answer))

    def _keep(self, shelf: dict[str, Any], key: str, answer: T) -> T:
        with self._lock:
            shelf[key] = answer
        return answer

    def _file(self, shelf: dict[str, Any], path: str, ask: Callable[[str], T]) -> T:
        try:
            return self._keep(shelf, path, ask(path))
        except OSError as problem:
            self._keep(shelf, path, problem.errno or errno.EIO)
            raise


class ReplaySystem:
    """A machine from its tape. What the tape does not hold does not exist there."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    @property
    def family(self) -> Family:
        return self.tape.family

    def facts(self) -> Mapping[str, Any]:
        return self.tape.facts

    def read(self, path: str) -> str:
        return _played(self.tape.read, path)

    def list(self, path: str) -> tuple[str, ...]:
        return tuple(_played(self.tape.list, path))

    def stat(self, path: str) -> Stat:
        return _played(self.tape.stat, path)

    def link(self, path: str) -> str:
        return _played(self.tape.link, path)

    def space(self, path: str) -> Space:
        return _played(self.tape.space, path)

    def environ(self) -> Mapping[str, str]:
        return self.tape.environ

    def which(self, name: str) -> str | None:
        return self.tape.which.get(name)

    def run(self, argv: Sequence[str], timeout: float) -> Output:
        words = tuple(argv)
        return self.tape.run.get(" ".join(words)) or Output(
            argv=words, exit=None, problem="not found"
        )

    def ask(
        self,
        script: str,
        python: str | None = None,
        arguments: Sequence[str] = (),
        timeout: float = 10,
    ) -> Mapping[str, Any]:
        return self.tape.ask.get(ask_key(script, python, arguments), {"problem": "not asked"})


def ask_key(script: str, python: str | None, arguments: Sequence[str]) -> str:
    return " ".join((script, *((python,) if python else ()), *arguments))


def _played(shelf: Mapping[str, T | int], path: str) -> T:
    answer = shelf.get(path, errno.ENOENT)
    if isinstance(answer, int):
        raise OSError(answer, os.strerror(answer), path)
    return answer
