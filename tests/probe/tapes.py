"""A machine on tape: all that is asked of it and answered, and small ones of a few files."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from functools import partialmethod
from typing import Any

from gpusetup.model.frozen import Record
from gpusetup.readings.paths import base_name, parent
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
    setattr(ReplaySystem, _name, partialmethod(ReplaySystem.answered, _name))


def system(
    files: Mapping[str, str] | None = None,
    *,
    family: Family = "linux",
    facts: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    which: Mapping[str, str | None] | None = None,
    says: Mapping[str, Output] | None = None,
    ask: Mapping[str, Mapping[str, Any]] | None = None,
    space: Mapping[str, int] | None = None,
) -> ReplaySystem:
    """A machine that has these files (a path that ends with / is a folder) and no others."""
    tape = Tape(
        family=family,
        facts=dict(facts or {}),
        environ=dict(environ or {}),
        link=dict(links or {}),
        which=dict(which or {}),
        run=dict(says or {}),
        ask={name: dict(answer) for name, answer in (ask or {}).items()},
        space={
            path: Space(total_bytes=2 * free, free_bytes=free)
            for path, free in (space or {}).items()
        },
    )
    for path, text in {**(files or {}), **dict.fromkeys(links or {}, "")}.items():
        if path.endswith(("/", "\\")):
            _place(tape, path.rstrip("/\\"), "drwxr-xr-x")
        else:
            tape.read[path] = text
            _place(tape, path, "-rw-r--r--")
    return ReplaySystem(tape)


def _place(tape: Tape, path: str, mode: str) -> None:
    tape.stat[path] = Stat(mode=mode, readable=True, writable=True)
    if mode.startswith("d"):
        tape.list.setdefault(path, ())
    above = parent(path)
    if above != path:
        if above not in tape.stat:
            _place(tape, above, "drwxr-xr-x")
        names = tape.list[above]
        assert not isinstance(names, int)
        tape.list[above] = tuple(sorted({*names, base_name(path)}))


def said(stdout: str = "", stderr: str = "", code: int = 0) -> Output:
    return Output(argv=(), exit=code, stdout=stdout, stderr=stderr)
