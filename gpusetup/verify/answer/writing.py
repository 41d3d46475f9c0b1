"""Where a report goes: a file or stdout. Edge."""

from __future__ import annotations

import sys
from typing import Optional

from ..values import Blocked


def write(text: str, path: Optional[str], option: str = "--output") -> None:
    """To the file, or to stdout."""
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
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
