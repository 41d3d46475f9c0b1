"""What the host still has: memory, and cores. On a busy machine a process is slow, not hung."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Optional

UNKNOWN = 2**29
"""What is taken if nothing tells."""
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
"""Limit and use, of version 2 and of version 1."""


def available_bytes() -> int:
    """What the host and this process's cgroup still have."""
    limits = [(_number(most), _number(now)) for most, now in CGROUPS]
    left = [max(0, most - now) for most, now in limits if most is not None and now is not None]
    host = _number("/proc/meminfo", r"MemAvailable:\s*(\d+)")
    return min([*left, *([] if host is None else [host * 1024])], default=UNKNOWN)


def _number(path: str, pattern: str = r"(\d+)") -> Optional[int]:
    """What a file of the kernel says; None where it says no number."""
    try:
        with open(path, encoding="ascii") as file:
            found = re.search(pattern, file.read())
    except OSError:
        return None
    return int(found.group(1)) if found else None


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
