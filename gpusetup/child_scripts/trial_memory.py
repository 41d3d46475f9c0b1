"""What a trial takes of a GPU or of the host, and what it may take. Python 3.8 syntax."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional, Tuple

import torch

KIB = 1024
STEADY_SHARE = 0.002
"""Two readings that lie no further apart, as a part of them, are one."""


def process_memory(name: str) -> Optional[int]:
    """A size of /proc/self/status in bytes; None if there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        rows = dict(line.split(":", 1) for line in file)
        return int(rows[name].split()[0]) * KIB if name in rows else None
    return None


def is_steady(rows: List[Dict[str, Optional[int]]]) -> bool:
    """Whether one more step would tell nothing new.

    >>> is_steady([{"forward": 1000}, {"forward": 1001}]), is_steady([{"forward": 900}])
    (True, False)
    """
    if len(rows) < 2:
        return False
    before, last = highest(rows[-2]), highest(rows[-1])
    return abs(last - before) <= STEADY_SHARE * last


def highest(peaks: Dict[str, Optional[int]]) -> int:
    """The peak of the phase that takes most, in bytes; 0 if the device tells none."""
    sizes = [peak for peak in peaks.values() if peak is not None]
    return max(sizes, default=0)


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

    def reserved(self) -> Optional[int]:
        """What the allocator has taken of the card, with the gaps between its blocks: this is what
        other programs miss, and what nvidia-smi shows."""
        return int(self.cuda.memory_reserved())

    def busy(self) -> Optional[float]:
        """What NVML says of the last moments, in percent; None without its binding."""
        with contextlib.suppress(Exception):
            return float(self.cuda.utilization())
        return None


class Host:
    """What is resident of this process."""

    def __init__(self, limit: Optional[int]) -> None:
        self.limit = None
        """Its parent knows what the host has free."""
        if limit:  # a guess that is far off must not take the host's memory
            with contextlib.suppress(ImportError, OSError, ValueError):
                import resource

                most = (process_memory("VmSize") or 0) + limit + limit // 4
                soft_limit, hard_limit = ADDRESS_LIMITS
                if soft_limit != NO_LIMIT:
                    most = min(most, soft_limit)
                resource.setrlimit(resource.RLIMIT_AS, (most, hard_limit))

    def finish(self) -> None:
        """There is no device to wait for."""

    def begin(self) -> None:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    def peak(self) -> Optional[int]:
        return process_memory("VmHWM")

    def now(self) -> Optional[int]:
        return process_memory("VmRSS")

    def reserved(self) -> Optional[int]:
        return None

    def busy(self) -> Optional[float]:
        return None


def address_limits() -> Tuple[int, int]:
    """`ulimit -v` of this process, soft and hard, in bytes; (-1, -1) for none."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        return resource.getrlimit(resource.RLIMIT_AS)
    return NO_LIMIT, NO_LIMIT


NO_LIMIT = -1
"""What `resource.RLIM_INFINITY` is, on systems without that module too."""
ADDRESS_LIMITS = address_limits()
"""As they were at the start: a trial lowers them."""


def device_of(request: Dict[str, Any]) -> str:
    wanted_device = str(request.get("device") or "auto")
    if wanted_device.startswith("cuda:"):
        torch.cuda.set_device(wanted_device)  # what counts memory and time asks the current device
    if wanted_device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return wanted_device


def memory_of(device: str, request: Dict[str, Any]) -> Any:
    kind = Cuda if device.startswith("cuda") else Host
    return kind(request.get("memory_limit_bytes"))
