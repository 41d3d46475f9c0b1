"""Ends a process with everything below it, also what made itself a group of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOING_SECONDS = 3.0
"""How long a killed process may take to be gone."""
PR_SET_CHILD_SUBREAPER = 36


def end(child: subprocess.Popen[Any]) -> None:
    """Kill a process and everything below it, also what made itself a group of its own.

    Each is stopped before it is killed: what is stopped starts nothing that would get away.
    """
    stopped: set[int] = set()
    own = () if child.poll() is not None else (child.pid,)
    while fresh := {*own, *descendants(child.pid)} - stopped:
        for pid in fresh:
            told(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in stopped:
        told(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GOING_SECONDS)


def told(pid: int, number: int) -> None:
    """A signal to a process that may be gone."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Meanwhile a process whose parent ended comes below this one (Linux), where it is found."""
    _subreaper(1)
    try:
        yield
    finally:
        _subreaper(0)


def _subreaper(on: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)


def end_left(before: set[int]) -> int:
    """Kill what came below this process and is still there; how many were running."""
    left = set(descendants(os.getpid())) - before
    running = [pid for pid in left if runs(pid)]
    for pid in left:
        told(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0 if pid in running else os.WNOHANG)
    return len(running)


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
