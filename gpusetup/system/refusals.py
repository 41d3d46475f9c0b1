"""Turns an `OSError` into an error message with the file and the reason."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from gpusetup.errors import Blocked

HELD_CODES = (5, 32, 33)
"""Windows' error codes for a file that a program uses; the first also means no permission."""
MOUNT = "it is a separate mount, and no file can be moved out of one"
"""Our text for the system's message "invalid cross-device link"."""
READ_ONLY = "nothing was changed; make it writable, or use another environment: `--venv DIR`"


@contextmanager
def blocked_by_files(failure: str, hint: str | None = None) -> Iterator[None]:
    """Turn an `OSError` in the block into `Blocked`; `failure` says what could not be done."""
    try:
        yield
    except OSError as problem:
        raise blocked_by(problem, failure, hint) from problem


def blocked_by(problem: OSError, failure: str, hint: str | None = None) -> Blocked:
    """The error for an `OSError`: what could not be done, with which file, and why."""
    reason = problem.strerror or str(problem)
    if problem.errno == errno.EXDEV:
        reason = MOUNT
    path = str(problem.filename or "")
    # The failure may name the file already.
    parts = (failure, "" if path in failure else path, reason)
    message = ": ".join(filter(None, parts))
    if getattr(problem, "winerror", None) in HELD_CODES:
        message += "; perhaps another program (Python, a notebook, an editor) holds it"
        advice = "close that, then run this again"
        hint = f"{hint}; {advice}" if hint else advice
    return Blocked(message, hint=hint)
