"""How long a process waited for a core: on a busy machine it is slow, not hung."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def waited_seconds(pid: int) -> float:
    """Of all threads of a process and of those that it started; 0 where nobody tells (no Linux)."""
    seconds = 0.0
    with contextlib.suppress(OSError, ValueError):
        for thread in Path("/proc", str(pid), "task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                seconds += int((thread / "schedstat").read_text().split()[1]) / 1e9
                children = (thread / "children").read_text().split()
                seconds += sum(waited_seconds(int(child)) for child in children)
    return seconds


def has_a_core_to_spare() -> bool:
    """Whether two processes can compute at a time here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1
