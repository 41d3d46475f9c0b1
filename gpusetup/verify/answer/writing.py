"""Where a report goes, a file or stdout, and what ended the program. Edge."""

from __future__ import annotations

import contextlib
from typing import Optional

from ..streams import Unwritten, put, say
from ..values import Blocked, Stop
from .render import as_error, harmless


def write(text: str, path: Optional[str], mode: str = "w") -> None:
    """To the file, or to stdout."""
    if path is None:
        put(text)
        return
    try:
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise Blocked(f"Cannot write {path}: {reason}", "name another file") from problem


def complain(stop: Stop, as_document: bool) -> int:
    """Say what ended the program; its exit code."""
    if as_document:
        with contextlib.suppress(BrokenPipeError, Unwritten):
            put(as_error(stop))
            return stop.exit_code
    say(harmless(f"error: {stop.message}") + "\n")
    say("\n" + harmless(f"hint: {stop.hint}") + "\n" if stop.hint else "")
    return stop.exit_code
