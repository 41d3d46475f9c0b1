"""The host's free memory, and how long processes wait for a CPU core."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Optional

UNKNOWN = 2**29
"""How many bytes we assume to be free if the system does not report it."""
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""The files with a cgroup's memory limit and its use, in version 2 and in version 1."""


def available_bytes() -> int:
    """How many bytes of memory this process can still use on the host and in its cgroup."""
    available = []
    for limit_path, use_path in CGROUPS:
        limit, use = number_in(limit_path), number_in(use_path)
        # If there is no limit, the file contains "max".
        if limit is not None and use is not None:
            available.append(max(0, limit - use))
    host_kibibytes = number_in("/proc/meminfo", r"MemAvailable:\s*(\d+)")
    if host_kibibytes is not None:
        available.append(host_kibibytes * 1024)
    return min(available, default=UNKNOWN)


def number_in(path: str, pattern: str = r"(\d+)") -> Optional[int]:
    """The first number that `pattern` finds in a kernel file; None if there is none."""
    try:
        with open(path, encoding="ascii") as file:
            match = re.search(pattern, file.read())
    except OSError:
        return None
    return int(match.group(1)) if match else None


def waited_seconds(pid: int) -> float:
    """How long a process with its threads and children has waited for a CPU core (Linux only)."""
    seconds = 0.0
    with contextlib.suppress(OSError, ValueError):
        for thread in Path("/proc", str(pid), "task").iterdir():
            # The thread may end before we read its files.
            with contextlib.suppress(OSError, ValueError):
                # The file contains the nanoseconds that the thread ran, the nanoseconds that it
                # waited for a core, and more.
                statistics = (thread / "schedstat").read_text().split()
                seconds += int(statistics[1]) / 1e9
                children = (thread / "children").read_text().split()
                seconds += sum(waited_seconds(int(child)) for child in children)
    return seconds
