"""How much memory of a GPU or the host a trial uses and may use. Python 3.8 syntax."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional, Tuple

import torch

KIB = 1024
STEADY_SHARE = 0.002
"""Two readings count as equal if their relative difference is no larger than this."""


def process_memory(name: str) -> Optional[int]:
    """A field of /proc/self/status in bytes; None if there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            label, _, value = line.partition(":")
            if label == name:
                # A line looks like `VmRSS: 123456 kB`.
                kibibytes = value.split()[0]
                return int(kibibytes) * KIB
    return None


def is_steady(rows: List[Dict[str, Optional[int]]]) -> bool:
    """Whether the last two steps had nearly the same peak, so that another step would show nothing
    new.

    >>> is_steady([{"forward": 1000}, {"forward": 1001}]), is_steady([{"forward": 900}])
    (True, False)
    """
    if len(rows) < 2:
        return False
    before = highest(rows[-2])
    last = highest(rows[-1])
    # Sizes differ slightly because allocators round them, and because a step may free memory later
    # than the previous step did.
    difference = abs(last - before)
    return difference <= STEADY_SHARE * last


def highest(peaks: Dict[str, Optional[int]]) -> int:
    """The peak of the phase that needs the most memory, in bytes; 0 if the device reports none."""
    sizes = []
    for peak in peaks.values():
        # A system without /proc does not report a peak.
        if peak is not None:
            sizes.append(peak)
    return max(sizes, default=0)


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
        share = min(1.0, self.limit / total)
        self.cuda.set_per_process_memory_fraction(share)

    def finish(self) -> None:
        """Wait until the GPU has finished all its work."""
        self.cuda.synchronize()

    def begin(self) -> None:
        """Begin a new phase, and measure its peak from now on."""
        self.finish()
        # Wait first, so that the previous phase's work does not count.
        self.cuda.reset_peak_memory_stats()

    def peak(self) -> Optional[int]:
        """The peak memory of the tensors since the phase began."""
        self.finish()
        most = self.cuda.max_memory_allocated()
        return int(most)

    def now(self) -> Optional[int]:
        """The current memory of the tensors."""
        # The gaps between the allocator's blocks are not included.
        allocated = self.cuda.memory_allocated()
        return int(allocated)

    def reserved(self) -> Optional[int]:
        """The memory that the allocator has reserved on the GPU, including the gaps between its
        blocks. Other programs cannot use it, and nvidia-smi counts it as used."""
        # The CUDA context itself is not included.
        reserved = self.cuda.memory_reserved()
        return int(reserved)

    def busy(self) -> Optional[float]:
        """The GPU's current utilization in percent, from NVML; None without the binding."""
        with contextlib.suppress(Exception):
            return float(self.cuda.utilization())
        return None


class HostMemory:
    """The resident memory of this process."""

    def __init__(self, limit: Optional[int]) -> None:
        # The parent process knows how much memory the host has free.
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

    def reserved(self) -> Optional[int]:
        return None

    def busy(self) -> Optional[float]:
        return None


def address_limits() -> Tuple[int, int]:
    """This process's soft and hard limit of `ulimit -v`, in bytes; (-1, -1) if there is none."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        return resource.getrlimit(resource.RLIMIT_AS)
    return NO_LIMIT, NO_LIMIT


NO_LIMIT = -1
"""The value of `resource.RLIM_INFINITY`, defined here because some systems lack the module."""
ADDRESS_LIMITS = address_limits()
"""The limits at the start, because a trial lowers them."""


def limit_address_space(limit: int) -> None:
    """Limit the address space, so that a trial with a far too large size cannot use up the host's
    memory."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        mapped_bytes = process_memory("VmSize") or 0
        # Threads and libraries map more memory than they use.
        headroom = limit // 4
        most = mapped_bytes + limit + headroom
        soft_limit, hard_limit = ADDRESS_LIMITS
        if soft_limit != NO_LIMIT:
            most = min(most, soft_limit)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard_limit))


def device_of(request: Dict[str, Any]) -> str:
    """The requested device. If none was requested, the GPU or, if there is none, the CPU."""
    wanted_device = str(request.get("device") or "auto")
    if wanted_device.startswith("cuda:"):
        torch.cuda.set_device(wanted_device)  # memory and time are measured on the current device
    if wanted_device != "auto":
        return wanted_device
    has_gpu = torch.cuda.is_available()
    return "cuda" if has_gpu else "cpu"


def memory_of(device: str, request: Dict[str, Any]) -> Any:
    """The object that measures a device's memory, limited to the requested number of bytes."""
    is_cuda = device.startswith("cuda")
    # Other devices (mps, xpu) share the host's memory, or do not report theirs.
    kind = Cuda if is_cuda else HostMemory
    limit = request.get("memory_limit_bytes")
    return kind(limit)
