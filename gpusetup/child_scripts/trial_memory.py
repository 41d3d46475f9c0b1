"""How much memory of a GPU or of the host a trial uses, and how much it may use. Uses Python 3.8
syntax."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional, Tuple

import torch

KIB = 1024
STEADY_SHARE = 0.002
"""Two readings that lie no further apart, as a part of them, are one."""


def process_memory(name: str) -> Optional[int]:
    """A size from /proc/self/status in bytes; None if there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            label, _, value = line.partition(":")
            if label == name:
                # `VmRSS:	  123456 kB`
                kibibytes = value.split()[0]
                return int(kibibytes) * KIB
    return None


def is_steady(rows: List[Dict[str, Optional[int]]]) -> bool:
    """Whether another step would show nothing new.

    >>> is_steady([{"forward": 1000}, {"forward": 1001}]), is_steady([{"forward": 900}])
    (True, False)
    """
    if len(rows) < 2:
        return False
    before = highest(rows[-2])
    last = highest(rows[-1])
    # Allocators round, and a step may free a little later than the one before.
    difference = abs(last - before)
    return difference <= STEADY_SHARE * last


def highest(peaks: Dict[str, Optional[int]]) -> int:
    """The peak of the phase that needs the most memory, in bytes; 0 if the device reports none."""
    sizes = []
    for peak in peaks.values():
        # A system without /proc tells none.
        if peak is not None:
            sizes.append(peak)
    return max(sizes, default=0)


class Cuda:
    """The memory that torch's CUDA allocator counts."""

    def __init__(self, limit: Optional[int]) -> None:
        self.cuda: Any = torch.cuda
        free, total = self.cuda.mem_get_info()
        # What this process has taken already is its own.
        available = free + self.cuda.memory_reserved()
        self.limit = min(available, limit or available)
        # Always: the drivers of Windows and WSL give the host's memory instead of saying no, and a
        # batch that spills into it would seem to fit.
        share = min(1.0, self.limit / total)
        self.cuda.set_per_process_memory_fraction(share)

    def finish(self) -> None:
        """Wait until the GPU has finished all its work."""
        self.cuda.synchronize()

    def begin(self) -> None:
        """Begin a new phase and count its peak from now on."""
        self.finish()
        # What the last phase still does must not count.
        self.cuda.reset_peak_memory_stats()

    def peak(self) -> Optional[int]:
        """The largest memory of the tensors since the phase began."""
        self.finish()
        most = self.cuda.max_memory_allocated()
        return int(most)

    def now(self) -> Optional[int]:
        """The current memory of the tensors."""
        # Without the gaps between the allocator's blocks.
        allocated = self.cuda.memory_allocated()
        return int(allocated)

    def reserved(self) -> Optional[int]:
        """The memory that the allocator has reserved on the card, including the gaps between its
        blocks. Other programs cannot use it, and nvidia-smi shows it."""
        # Without the CUDA context itself.
        reserved = self.cuda.memory_reserved()
        return int(reserved)

    def busy(self) -> Optional[float]:
        """How busy the GPU was just now according to NVML, in percent; None without the binding."""
        with contextlib.suppress(Exception):
            return float(self.cuda.utilization())
        return None


class HostMemory:
    """The resident memory of this process."""

    def __init__(self, limit: Optional[int]) -> None:
        # Its parent knows what the host has free.
        self.limit = None
        if limit:
            limit_address_space(limit)

    def finish(self) -> None:
        """Do nothing, because there is no device to wait for."""

    def begin(self) -> None:
        """Begin a new phase; the kernel resets the peak."""
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            # 5: the peak resident set size (proc(5), Linux 4.0).
            file.write("5")

    def peak(self) -> Optional[int]:
        """The largest resident memory since the phase began."""
        return process_memory("VmHWM")

    def now(self) -> Optional[int]:
        """The current resident memory."""
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


def limit_address_space(limit: int) -> None:
    """Limit the address space, so that a trial with a far too large size cannot use up the host's
    memory."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        mapped_bytes = process_memory("VmSize") or 0
        # Threads and libraries map more than they use.
        headroom = limit // 4
        most = mapped_bytes + limit + headroom
        soft_limit, hard_limit = ADDRESS_LIMITS
        if soft_limit != NO_LIMIT:
            most = min(most, soft_limit)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard_limit))


def device_of(request: Dict[str, Any]) -> str:
    """The device in the request, or else the GPU if there is one."""
    wanted_device = str(request.get("device") or "auto")
    if wanted_device.startswith("cuda:"):
        torch.cuda.set_device(wanted_device)  # what counts memory and time asks the current device
    if wanted_device != "auto":
        return wanted_device
    has_gpu = torch.cuda.is_available()
    return "cuda" if has_gpu else "cpu"


def memory_of(device: str, request: Dict[str, Any]) -> Any:
    """The object that counts a device's memory, within the limit of the request."""
    is_cuda = device.startswith("cuda")
    # Other devices (mps, xpu) share the host's memory, or tell nothing.
    kind = Cuda if is_cuda else HostMemory
    limit = request.get("memory_limit_bytes")
    return kind(limit)
