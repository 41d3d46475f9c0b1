"""What a trial takes of a GPU or of the host, and what it may take: beside `bench.py`.

Python 3.8 syntax.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import torch

KIB = 1024
LEAK_LEAST = 1 << 20
STEADY = 0.002
"""Two readings that lie no further apart, as a part of them, are one."""


def status(name: str) -> Optional[int]:
    """A size of /proc/self/status in bytes; None if there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        rows = dict(line.split(":", 1) for line in file)
        return int(rows[name].split()[0]) * KIB if name in rows else None
    return None


def available() -> Iterator[int]:
    """What this process may hold: the host's free memory, and what its control group leaves."""
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        yield from (int(line.split()[1]) * KIB for line in file if line.startswith("MemAvail"))
    for group in ("/proc/self/cgroup", os.devnull):  # of version 2: its own, and all of a container
        with contextlib.suppress(OSError, ValueError, KeyError):
            place = "/sys/fs/cgroup" + Path(group).read_text().strip().rpartition("::")[2]
            texts = ("memory.max", "memory.current", "memory.stat")
            most, used, stat = (Path(place, name).read_text() for name in texts)
            rows = dict(line.split() for line in stat.splitlines())
            files = int(rows["inactive_file"]) + int(rows["active_file"])  # the kernel drops them
            yield int(most) - max(0, int(used) - files) + (status("RssAnon") or 0)


def steady(rows: List[Dict[str, Optional[int]]], stands: List[Optional[int]]) -> bool:
    """Whether one more step would tell nothing new.

    >>> steady([{"forward": 1000}, {"forward": 1001}], [5, 5, 5])
    True
    >>> steady([{"forward": 9 << 20}, {"forward": 9 << 20}], [0, 2 << 20, 4 << 20])
    False
    """
    if len(rows) < 2:
        return False
    grows = all((stands[i] or 0) - (stands[i - 1] or 0) >= LEAK_LEAST for i in (-2, -1))
    last, before = (max((one or 0 for one in row.values()), default=0) for row in rows[:-3:-1])
    return not grows and abs(last - before) <= STEADY * last


class Cuda:
    """What torch's CUDA allocator counts."""

    def __init__(self, limit: Optional[int]) -> None:
        self.cuda: Any = torch.cuda
        free, total = self.cuda.mem_get_info()
        self.limit = free + self.cuda.memory_reserved()
        self.limit = min(self.limit, limit or self.limit)
        # Always: the drivers of Windows and WSL give the host's memory instead of saying no, and a
        # batch that spills into it would seem to fit.
        self.cuda.set_per_process_memory_fraction(min(1.0, self.limit / total))

    def finish(self) -> None:
        self.cuda.synchronize()

    def begin(self) -> None:
        self.finish()
        self.cuda.reset_peak_memory_stats()

    def peak(self) -> Optional[int]:
        self.finish()
        return int(self.cuda.max_memory_allocated())

    def now(self) -> Optional[int]:
        return int(self.cuda.memory_allocated())

    def busy(self) -> Optional[float]:
        """What NVML says of the last moments, in percent; None without its binding."""
        with contextlib.suppress(Exception):
            return float(self.cuda.utilization())
        return None


class Host:
    """What is resident of this process."""

    def __init__(self, limit: Optional[int]) -> None:
        sizes = [*available(), *([limit] if limit else ())]
        self.limit = min(sizes) if sizes else None
        if limit:  # a guess that is far off must not take the host's memory
            with contextlib.suppress(ImportError, OSError, ValueError):
                import resource

                most = (status("VmSize") or 0) + limit + limit // 4
                resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    def finish(self) -> None:
        """There is no device to wait for."""

    def begin(self) -> None:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    def peak(self) -> Optional[int]:
        return status("VmHWM")

    def now(self) -> Optional[int]:
        return status("VmRSS")

    def busy(self) -> Optional[float]:
        return None
