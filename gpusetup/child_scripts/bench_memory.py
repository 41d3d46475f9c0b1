"""What a trial takes of a GPU or of the host, and what it may take: beside `bench.py`.

Python 3.8 syntax.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, List, Optional

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
    """What this process may hold in its own cgroup and those around it, of both versions."""
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as groups:
        for line in groups:
            _, kinds, path = line.strip().split(":", 2)
            base = "/sys/fs/cgroup" if not kinds else "/sys/fs/cgroup/memory"
            name = "memory.max" if not kinds else "memory.limit_in_bytes"
            parts = path.strip("/").split("/") if not kinds or "memory" in kinds else []
            for depth in range(len(parts) + 1):
                place = os.path.join(base, *parts[:depth])
                file_name = os.path.join(place, name)
                with contextlib.suppress(OSError, ValueError), open(file_name) as limit:
                    yield int(limit.read()) - taken(place) + (status("RssAnon") or 0)


def taken(place: str) -> int:
    """What the processes of a cgroup hold, without the files that the kernel may drop."""
    names = ("memory.current", "memory.usage_in_bytes")
    used = 0
    for name in names:
        with contextlib.suppress(OSError, ValueError), open(os.path.join(place, name)) as file:
            used = int(file.read())
    with contextlib.suppress(OSError, ValueError), open(os.path.join(place, "memory.stat")) as file:
        rows = dict(line.split() for line in file)
        used -= int(rows.get("inactive_file", 0)) + int(rows.get("active_file", 0))
    return max(0, used)


def available() -> Optional[int]:
    """What a process may still take: MemAvailable, or the cgroup's limit where that is less."""
    found: List[int] = []
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        found += [int(line.split()[1]) * KIB for line in file if line.startswith("MemAvailable:")]
    found += cgroup_limits()
    return min(found) if found else None


def utilization(cuda: Any) -> Optional[float]:
    """Percent of the time that the current GPU was busy, by NVML; None where it does not tell.

    The GPU is asked for by its UUID: NVML counts others than CUDA does (CUDA_VISIBLE_DEVICES,
    CUDA's order), and torch before 2.2 asks by CUDA's number.
    """
    with contextlib.suppress(Exception):
        import pynvml as nvml

        uuid = str(getattr(cuda.get_device_properties(cuda.current_device()), "uuid", ""))
        nvml.nvmlInit()
        if uuid:
            name = uuid if uuid.startswith(("GPU-", "MIG-")) else "GPU-" + uuid
            handle = nvml.nvmlDeviceGetHandleByUUID(name)
        elif nvml.nvmlDeviceGetCount() == 1:
            handle = nvml.nvmlDeviceGetHandleByIndex(0)
        else:
            return None
        return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return None


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


STEADY = 0.002
"""Two readings that lie no further apart, as a part of them, are one."""
GROWS = 1 << 20
"""What stands after a step has grown where it is this much more."""


def steady(
    rows: List[Dict[str, Optional[int]]],
    stands: List[Optional[int]],
    least_rows: int = 2,
    enough: bool = False,
) -> bool:
    """Whether one more step would tell nothing new. `enough`: or too little for its time.

    >>> steady([{"forward": 1000}, {"forward": 1001}], [5, 5, 5])
    True
    >>> steady([{"forward": 9 << 20}, {"forward": 9 << 20}], [0, 2 << 20, 4 << 20])
    False
    """
    if enough and len(rows) != 2:
        return True
    if len(rows) < (2 if enough else least_rows):
        return False
    grows = all((stands[i] or 0) - (stands[i - 1] or 0) >= GROWS for i in (-2, -1))
    last, before = (max((one or 0 for one in row.values()), default=0) for row in rows[:-3:-1])
    return not grows and (enough or abs(last - before) <= STEADY * last)


HOLES = 0.5
"""So much more of what is in use in glibc's heap is counted under a limit of addresses.

After a block was freed, glibc lays those of up to its size, at most 32 MiB, into its heap
(mallopt(3), M_MMAP_THRESHOLD), and how well they fit there differs from run to run: what five runs
of one convolutional network took beside what stands lay between 54 and 77 MiB. Larger blocks are
mapped one by one and leave no holes.
"""


def in_heap() -> int:
    """The bytes in use in glibc's heaps; 0 where another allocator serves, or glibc before 2.33."""
    import ctypes

    class Info(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in MALLINFO2]

    with contextlib.suppress(AttributeError, OSError, TypeError):
        ask = ctypes.CDLL(None).mallinfo2
        ask.restype = Info
        return int(ask().uordblks)
    return 0


MALLINFO2 = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
    "keepcost",
)  # fmt: skip
"""The fields of glibc's `struct mallinfo2`, see mallinfo(3)."""


PATIENCE = 1.5
"""After so many seconds of steps, the warm-up's included, one that was read is enough where
addresses count: the kernel keeps the most, and more steps add less than the holes allow for."""


FAR = 0.5
"""A size that leaves this part of the addresses free that stood free before is far from the limit.
"""


class Cuda:
    """What torch's CUDA allocator counts."""

    least_rows, patience = 2, float("inf")

    def also(self) -> Dict[str, Optional[int]]:
        """Of a step that ended, beside its phases."""
        return {}

    def holes(self) -> int:
        """Bytes by which another run may differ from this one, counted already."""
        return 0

    def __init__(self, limit: Optional[int]) -> None:
        import torch

        self.cuda = torch.cuda
        free, total = self.cuda.mem_get_info()
        self.limit = free + self.cuda.memory_reserved()
        self.limit = min(self.limit, limit or self.limit)
        # Always: the drivers of Windows and WSL give the host's memory instead of saying no, and a
        # batch that spills into it would seem to fit.
        self.cuda.set_per_process_memory_fraction(min(1.0, self.limit / total))

    def begin(self) -> None:
        self.cuda.synchronize()
        self.cuda.reset_peak_memory_stats()

    def peak(self) -> Optional[int]:
        self.cuda.synchronize()
        return int(self.cuda.max_memory_allocated())

    def now(self) -> Optional[int]:
        return int(self.cuda.memory_allocated())

    def reserved(self) -> Optional[int]:
        """What the allocator held at most, the fragments that serve nothing included."""
        return int(self.cuda.max_memory_reserved())

    def busy(self) -> Optional[float]:
        """What NVML says of the last moments; None without its binding."""
        return utilization(self.cuda)


class Host:
    """The process's memory: its address space under a limit, else what is resident."""

    def __init__(self, limit: Optional[int]) -> None:
        wished, limit = limit, least(limit, address_limit())
        self.by_space = limit is not None
        if wished is not None and limit == wished:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        self.limit = limit if limit is not None else available()
        self.stood: Optional[int] = None
        self.patience = PATIENCE if self.by_space else float("inf")
        self.standing = self.scattered = 0
        self.untouched: Optional[int] = None

    @property
    def least_rows(self) -> int:
        """How many steps are read at least: of a size far from the limit two tell enough."""
        if self.limit is None or self.stood is None:
            return 2
        taken = (status("VmPeak") or 0) + self.holes()
        return 2 if self.limit - taken >= FAR * (self.limit - self.stood) else 5

    def begin(self) -> None:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    def peak(self) -> Optional[int]:
        """The most since `begin`, by what was resident; with the addresses that nobody touched.

        The kernel's own peak of addresses cannot be set back: it shows the highest phase alone, and
        of a small batch what has nothing to do with its size.
        """
        if not self.by_space or self.untouched is None:
            return status("VmPeak" if self.by_space else "VmHWM")
        self.scattered = max(self.scattered, in_heap() - self.standing)
        resident = status("VmHWM")
        return None if resident is None else resident + self.untouched + self.holes()

    def also(self) -> Dict[str, Optional[int]]:
        """All addresses at most; with the holes that another run may have."""
        taken = status("VmPeak") if self.by_space else None
        return {} if taken is None else {"space": taken + self.holes()}

    def holes(self) -> int:
        return int(HOLES * self.scattered)

    def now(self) -> Optional[int]:
        """What stands between steps."""
        if not self.by_space:
            return status("VmRSS")
        self.standing = in_heap()
        taken, resident = status("VmSize"), status("VmRSS")
        if self.untouched is None and taken is not None and resident is not None:
            self.untouched = taken - resident
        self.stood = self.stood or taken
        return taken

    def reserved(self) -> Optional[int]:
        return None

    def busy(self) -> Optional[float]:
        return None
