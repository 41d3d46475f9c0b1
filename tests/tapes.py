"""Small tapes for the tests of the readers: a few files, a few facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusetup.readings.paths import base_name, parent
from gpusetup.system.processes import Output
from gpusetup.system.system import Family, Space, Stat
from gpusetup.system.tape import ReplaySystem, Tape


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
