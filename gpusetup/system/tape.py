"""A machine on tape: all that was asked of it and answered, kept and played again anywhere."""

from __future__ import annotations

import errno
import os
import threading
from functools import partialmethod
from typing import Any

from gpusetup.model.frozen import Record
from gpusetup.system.processes import Output
from gpusetup.system.system import Family, Space, Stat, System


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


def key_of(question: Any, python: Any = None, timeout: float = 0) -> str:
    """What a question is kept by.

    >>> key_of("read_torch", "/x/python"), key_of(("dmesg", "-T"), 5.0)
    ('read_torch /x/python', 'dmesg -T')
    """
    if isinstance(question, str):
        question = filter(None, (question, python))
    return " ".join(question)


class RecordingSystem(System):
    """Passes every question on and keeps it with its answer on a tape, from any thread."""

    def __init__(self, inner: System) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.family = inner.family
        self.tape = Tape(family=inner.family)

    def answered(self, name: str, *words: Any, **more: Any) -> Any:
        answer: Any = None
        try:
            answer = getattr(self._inner, name)(*words, **more)
        except OSError as problem:
            answer = problem.errno or errno.EIO
            raise
        finally:
            with self._lock:
                if words:
                    getattr(self.tape, name)[key_of(*words, **more)] = answer
                else:
                    setattr(self.tape, name, dict(answer))
        return answer


class ReplaySystem(System):
    """A machine from its tape. What the tape does not hold does not exist there."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.family = tape.family

    def answered(self, name: str, *words: Any, **more: Any) -> Any:
        kept = getattr(self.tape, name)
        if not words:
            return kept
        lacking = {"which": None, "run": NOT_FOUND, "ask": {"problem": "not asked"}}
        answer = kept.get(key_of(*words, **more), lacking.get(name, errno.ENOENT))
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer), words[0])
        return answer


NOT_FOUND = Output(argv=(), exit=None, problem="not found")
QUESTIONS = ("facts", "environ", "read", "list", "stat", "link", "space", "which", "run", "ask")
for _name in QUESTIONS:
    setattr(RecordingSystem, _name, partialmethod(RecordingSystem.answered, _name))
    setattr(ReplaySystem, _name, partialmethod(ReplaySystem.answered, _name))
