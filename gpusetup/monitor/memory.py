"""What torch's allocator holds, asked from the inside of a training process."""

from __future__ import annotations

import sys
from typing import Any

from gpusetup.model.frozen import Frozen


class DeviceMemory(Frozen):
    """One device. `allocated`: by tensors; `reserved`: kept by the allocator for them."""

    device: str
    name: str | None
    allocated_bytes: int
    reserved_bytes: int
    total_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    free_bytes: int | None = None
    """As the driver sees it, other processes counted; None for a device not used so far."""

    def __str__(self) -> str:
        parts = (
            f"allocated {gib(self.allocated_bytes)} (peak {gib(self.peak_allocated_bytes)})",
            f"reserved {gib(self.reserved_bytes)} (peak {gib(self.peak_reserved_bytes)})",
            f"total {gib(self.total_bytes)}",
        )
        return f"{self.device} {self.name or ''}".rstrip() + ": " + ", ".join(parts)


class MemoryReport(Frozen):
    devices: tuple[DeviceMemory, ...]

    def __str__(self) -> str:
        lines = "\n".join(map(str, self.devices))
        return lines or "No CUDA device is in use by this process."


def memory_report() -> MemoryReport:
    """Allocated, reserved and total memory of every CUDA device of this process.

    Reading it starts nothing: where torch was not imported, or CUDA not yet used, there is no
    device. Print it, or read its fields:

        print(memory_report())
        memory_report().devices[0].allocated_bytes
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return MemoryReport(devices=())
    return MemoryReport(devices=tuple(_device(torch, i) for i in range(torch.cuda.device_count())))


def gib(count: int) -> str:
    """
    >>> gib(3 << 29)
    '1.50 GiB'
    """
    return f"{count / (1 << 30):.2f} GiB"


def _device(torch: Any, index: int) -> DeviceMemory:
    properties = torch.cuda.get_device_properties(index)
    reserved = torch.cuda.memory_reserved(index)
    # Asking the driver would make a context, and take memory, on a device not used so far.
    free = torch.cuda.mem_get_info(index)[0] if reserved else None
    return DeviceMemory(
        device=f"cuda:{index}",
        name=properties.name,
        allocated_bytes=torch.cuda.memory_allocated(index),
        reserved_bytes=reserved,
        total_bytes=properties.total_memory,
        peak_allocated_bytes=torch.cuda.max_memory_allocated(index),
        peak_reserved_bytes=torch.cuda.max_memory_reserved(index),
        free_bytes=free,
    )
