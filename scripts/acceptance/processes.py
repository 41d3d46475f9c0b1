"""Ends a process with everything below it, also what made itself a group of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

GOING_SECONDS = 3.0
"""How long a killed process may take to be gone."""


def end(child: subprocess.Popen[Any]) -> None:
    """Kill a process and everything below it, also what made itself a group of its own."""
    below = descendants(child.pid)
    for pid in (child.pid, *below):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GOING_SECONDS)


def descendants(pid: int) -> list[int]:
    """The processes below one, from /proc; none where there is no /proc."""
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            below.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, waiting = [], [pid]
    while waiting:
        own = below.get(waiting.pop(), [])
        found += own
        waiting += own
    return found
