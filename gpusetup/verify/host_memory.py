"""How much memory the host, or the container on it, still has."""

from __future__ import annotations

import re
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
