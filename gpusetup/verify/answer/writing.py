"""Where a report goes, a file or stdout, and what ended the program. Edge."""

from __future__ import annotations

from typing import Optional

from ..streams import put, say
from ..values import Blocked, Stop
from .render import as_error, harmless


def write(text: str, path: Optional[str], option: str = "--output") -> None:
    """To the file, or to stdout."""
    if path is None:
        put(text)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise Blocked(f"Cannot write {path}: {reason}", f"name another {option}") from problem


def writable(path: Optional[str], option: str) -> None:
    """Whether a report can be written is known before hours are spent on it."""
    if path is None:
        return
    try:
        with open(path, "a", encoding="utf-8"):
            return
    except OSError as problem:
        raise Blocked(
            f"Cannot write {path}: {problem.strerror}", f"name another {option}"
        ) from problem


def complain(stop: Stop, as_document: bool) -> int:
    """Say what ended the program; its exit code."""
    if as_document:
        put(as_error(stop))
    else:
        say(harmless(f"error: {stop.message}") + "\n")
        say("\n" + harmless(f"hint: {stop.hint}") + "\n" if stop.hint else "")
    return stop.exit_code
