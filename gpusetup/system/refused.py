"""What the system refuses, as an answer: which file, and on Windows which program holds it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gpusetup.errors import Blocked

HELD = (5, 32, 33)
"""Windows' codes where a program holds a file; the first also means that permission is missing."""
READ_ONLY = "nothing was changed; make it writable, or use another environment: `--venv DIR`"


@contextmanager
def blocked_by_files(said: str, hint: str | None = None) -> Iterator[None]:
    """An `OSError` of the block as `Blocked`. `said`: what could not be done."""
    try:
        yield
    except OSError as problem:
        raise refused(problem, said, hint) from problem


def refused(problem: OSError, said: str, hint: str | None = None) -> Blocked:
    name = str(problem.filename or "")
    place = "" if name in said else name
    told = ": ".join(filter(None, (said, place, problem.strerror or str(problem))))
    if getattr(problem, "winerror", None) in HELD:
        who = holding(name) if name else ""
        told += f"; {who or 'perhaps another program (Python, a notebook, an editor)'} holds it"
        hint = "; ".join(filter(None, (hint, "close that, then run this again")))
    return Blocked(told, hint=hint)


def holding(place: str) -> str:
    """The programs that have files loaded whose paths begin so, as far as psutil may tell."""
    import psutil

    found, start = {}, os.path.normcase(place)
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if any(os.path.normcase(row.path).startswith(start) for row in one.memory_maps()):
                found[one.pid] = "a program"  # Wine tells no names
                found[one.pid] = one.name()
    return ", ".join(f"{name} (process {pid})" for pid, name in found.items())
