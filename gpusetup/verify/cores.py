"""How long a process waited for a core: on a busy machine it is slow, not hung."""

from __future__ import annotations

import contextlib
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
