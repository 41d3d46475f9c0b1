"""How much memory of a GPU or the host a trial uses and may use. Python 3.8 syntax."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional

import torch

STEADY_SHARE = 0.002
"""Two readings count as equal if their relative difference is no larger than this."""


def process_memory(name: str) -> Optional[int]:
    """A field of /proc/self/status in bytes; None if there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            # A line looks like `VmRSS: 123456 kB`.
            label, _, value = line.partition(":")
            if label == name:
                return int(value.split()[0]) * 1024
    return None


def is_steady(rows: List[Dict[str, Optional[int]]]) -> bool:
    """Whether the last two steps had nearly the same peak, so that another step would show nothing
    new. Sizes differ slightly because allocators round them, and because a step may free memory
    later than the previous step did.

    >>> is_steady([{"forward": 1000}, {"forward": 1001}]), is_steady([{"forward": 900}])
    (True, False)
    """
    if len(rows) < 2:
        return False
    before, last = highest(rows[-2]), highest(rows[-1])
    return abs(last - before) <= STEADY_SHARE * last


def highest(peaks: Dict[str, Optional[int]]) -> int:
    """The peak of the phase that needs the most memory, in bytes; 0 if the device reports none, as
    on a system without /proc."""
    return max((peak for peak in peaks.values() if peak is not None), default=0)


class Cuda:
    """The memory that torch's CUDA allocator counts."""

    def __init__(self, limit: Optional[int]) -> None:
        self.cuda: Any = torch.cuda
        free, total = self.cuda.mem_get_info()
        # This process may also use the memory that it has already reserved.
        available = free + self.cuda.memory_reserved()
        self.limit = min(available, limit or available)
        # Set the limit even if it is all available memory. On Windows and WSL, the driver would
        # otherwise give out host memory, and a batch too large for the GPU would seem to fit.
        self.cuda.set_per_process_memory_fraction(min(1.0, self.limit / total))

    def finish(self) -> None:
        """Wait until the GPU has finished all its work."""
        self.cuda.synchronize()

    def begin(self) -> None:
        """Begin a new phase, whose peak does not count the work of the one before."""
        self.finish()
        self.cuda.reset_peak_memory_stats()

    def peak(self) -> Optional[int]:
        """The peak memory of the tensors since the phase began."""
        self.finish()
        return int(self.cuda.max_memory_allocated())

    def now(self) -> Optional[int]:
        """The current memory of the tensors, without the gaps between the allocator's blocks."""
        return int(self.cuda.memory_allocated())

    def busy(self) -> Optional[float]:
        """The GPU's current utilization in percent, from NVML; None without the binding."""
        with contextlib.suppress(Exception):
            return float(self.cuda.utilization())
        return None


class HostMemory:
    """The resident memory of this process."""

    def __init__(self, limit: Optional[int]) -> None:
        # Only a GPU's limit is part of the answer. The host's comes from the parent process, which
        # knows it already.
        self.limit = None
        if limit:
            limit_address_space(limit)

    def finish(self) -> None:
        """Do nothing, because there is no device to wait for."""

    def begin(self) -> None:
        """Begin a new phase; the kernel resets the peak."""
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            # Writing 5 resets the peak resident set size (proc(5), Linux 4.0).
            file.write("5")

    def peak(self) -> Optional[int]:
        """The peak resident memory since the phase began."""
        return process_memory("VmHWM")

    def now(self) -> Optional[int]:
        """The current resident memory in bytes."""
        return process_memory("VmRSS")

    def busy(self) -> Optional[float]:
        return None


def limit_address_space(limit: int) -> None:
    """Limit the address space, so that a far too large trial cannot use up the host's memory."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        # Threads and libraries map more memory than they use.
        most = (process_memory("VmSize") or 0) + limit + limit // 4
        soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
        if soft_limit != resource.RLIM_INFINITY:
            most = min(most, soft_limit)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard_limit))


def device_of(request: Dict[str, Any]) -> str:
    """The requested device. If none was requested, the GPU or, if there is none, the CPU."""
    wanted = str(request.get("device") or "auto")
    if wanted.startswith("cuda:"):
        torch.cuda.set_device(wanted)  # memory and time are measured on the current device
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


def memory_of(device: str, request: Dict[str, Any]) -> Any:
    """The object that measures a device's memory, limited to the requested number of bytes if the
    request has one. Other devices (mps, xpu) share the host's memory, or do not report theirs."""
    kind = Cuda if device.startswith("cuda") else HostMemory
    return kind(request.get("memory_limit_bytes"))
