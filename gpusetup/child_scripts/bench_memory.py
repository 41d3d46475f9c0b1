"""What a process takes of the host and may still take: beside `bench.py`. Python 3.8 syntax."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator, List, Optional

KIB = 1024


def status(name: str) -> Optional[int]:
    """A size of /proc/self/status in bytes; None where there is no such file."""
    try:
        with open("/proc/self/status") as file:
            lines = [line.split() for line in file if line.startswith(name + ":")]
    except OSError:
        return None
    return int(lines[0][1]) * KIB if lines else None


def least(*sizes: Optional[int]) -> Optional[int]:
    """
    >>> least(None, 3, 2), least(None)
    (2, None)
    """
    return min((size for size in sizes if size is not None), default=None)


def address_limit() -> Optional[int]:
    """`ulimit -v`; None where there is none, or no such thing."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        return None if soft == resource.RLIM_INFINITY else int(soft)
    return None


def cgroup_limits() -> Iterator[int]:
    """Of the process's own cgroup and those around it, of both versions."""
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, kinds, path = line.strip().split(":", 2)
            base = "/sys/fs/cgroup" if not kinds else "/sys/fs/cgroup/memory"
            name = "memory.max" if not kinds else "memory.limit_in_bytes"
            parts = path.strip("/").split("/") if not kinds or "memory" in kinds else []
            for depth in range(len(parts) + 1):
                place = os.path.join(base, *parts[:depth], name)
                with contextlib.suppress(OSError, ValueError), open(place) as limit:
                    yield int(limit.read())


def available() -> Optional[int]:
    """What a process may still take: MemAvailable, or the cgroup's limit where that is less."""
    found: List[int] = []
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        found += [int(line.split()[1]) * KIB for line in file if line.startswith("MemAvailable:")]
    found += cgroup_limits()
    return min(found) if found else None


LEAK_LEAST = 1 << 20


def leaked(stands: List[Optional[int]]) -> Optional[int]:
    """By how many bytes a step what stands after it grows; None where it does not in nearly all.

    >>> leaked([0, 2 << 20, 4 << 20, 6 << 20, 8 << 20]), leaked([0, 9 << 20, 9 << 20, 9 << 20])
    (2097152, None)
    """
    known = [one for one in stands if one is not None]
    grown = [known[i + 1] - known[i] for i in range(len(known) - 1)]
    if len(grown) < 4 or sum(one > 0 for one in grown) < 0.9 * len(grown):
        return None
    middle = sorted(grown)[len(grown) // 2]
    return middle if middle >= LEAK_LEAST else None
