"""An `OSError` as an answer: which file was refused, and on Windows which program holds it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gpusetup.errors import Blocked

HELD_CODES = (5, 32, 33)
"""Windows' codes where a program holds a file; the first also means that permission is missing."""
MOUNT = "it is a separate mount, and no file can be moved out of one"
"""What the system means by an invalid link across devices."""
READ_ONLY = "nothing was changed; make it writable, or use another environment: `--venv DIR`"


@contextmanager
def blocked_by_files(failure: str, hint: str | None = None) -> Iterator[None]:
    """An `OSError` of the block as `Blocked`. `failure`: what could not be done."""
    try:
        yield
    except OSError as problem:
        raise blocked_by(problem, failure, hint) from problem


def blocked_by(problem: OSError, failure: str, hint: str | None = None) -> Blocked:
    name = str(problem.filename or "")
    path = "" if name in failure else name
    why = MOUNT if problem.errno == errno.EXDEV else problem.strerror or str(problem)
    message = ": ".join(filter(None, (failure, path, why)))
    if getattr(problem, "winerror", None) in HELD_CODES:
        who = holders_of(name) if name else ""
        message += f"; {who or 'perhaps another program (Python, a notebook, an editor)'} holds it"
        hint = "; ".join(filter(None, (hint, "close that, then run this again")))
    return Blocked(message, hint=hint)


def holders_of(folder: str) -> str:
    """The programs that have files loaded whose paths begin so, as far as psutil may tell."""
    import psutil

    names, start = {}, os.path.normcase(folder)
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if any(os.path.normcase(row.path).startswith(start) for row in process.memory_maps()):
                names[process.pid] = "a program"  # Wine tells no names
                names[process.pid] = process.name()
    return ", ".join(f"{name} (process {pid})" for pid, name in names.items())
