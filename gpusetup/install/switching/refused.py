"""What the system refuses, as an answer: which file, and on Windows which program holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpusetup.errors import Blocked
from gpusetup.install.target.in_use import holding

HELD = (5, 32, 33)
"""Windows' codes where a program holds a file; the first also means that permission is missing."""
READ_ONLY = "nothing was changed; make it writable, or use another environment: `--venv DIR`"


@contextmanager
def blocked_by_files(said: str, hint: str) -> Iterator[None]:
    """An `OSError` of the block as `Blocked`. `said`: what could not be done."""
    try:
        yield
    except OSError as problem:
        raise refused(problem, said, hint) from problem


def refused(problem: OSError, said: str, hint: str) -> Blocked:
    place = problem.filename if str(problem.filename) not in said else None
    told = ": ".join(filter(None, (said, place, problem.strerror or str(problem))))
    if getattr(problem, "winerror", None) in HELD:
        who = holding(problem.filename) or "another program (Python, a notebook, an editor)"
        told, hint = f"{told}; {who} holds it", f"{hint}; close that, then run this again"
    return Blocked(told, hint=hint)
