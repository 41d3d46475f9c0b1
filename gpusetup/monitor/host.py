"""The machine as a whole: CPU, memory, disks and network, since the sample before. Edge: psutil."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

from gpusetup.monitor.values import HostSample

T = TypeVar("T")


def asked(read: Callable[..., T], *of: object) -> T | None:
    """What psutil tells; None where the process has ended, is another user's, or the system has no
    such figure. Watching goes on: it must not break what is watched."""
    try:
        return read(*of)
    except (psutil.Error, OSError, RuntimeError, AttributeError, KeyError):
        return None


class Host:
    """Samples of this machine; what the system does not tell is None."""

    def __init__(self) -> None:
        self._cores = asked(psutil.cpu_count)
        self._before = (time.monotonic(), _counters())

    def sample(self) -> HostSample:
        (at, before), now, counters = self._before, time.monotonic(), _counters()
        self._before = (now, counters)
        rates = {
            name: max(0.0, counters[name] - before[name]) / (now - at)
            for name in counters
            if name in before and now > at
        }
        memory, busy = asked(psutil.virtual_memory), rates.pop("busy", None)
        return HostSample(
            cpu_percent=None if busy is None else round(busy * 100, 1),
            cores=self._cores,
            memory_used_bytes=memory and memory.total - memory.available,
            memory_total_bytes=memory and memory.total,
            **{f"{name}_bytes_per_second": float(round(rate)) for name, rate in rates.items()},
        )


def _counters() -> dict[str, float]:
    """What only grows: seconds of all cores with work, and bytes. Without a network or a disk, or
    where they are hidden, there is nothing to count."""
    times, disk = asked(psutil.cpu_times), asked(psutil.disk_io_counters)
    told: dict[str, float] = {}
    if times is not None:
        rests = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0)
        told["busy"] = sum(times) - rests
    if disk is not None:
        told |= {"disk_read": disk.read_bytes, "disk_write": disk.write_bytes}
    if (network := asked(psutil.net_io_counters)) is not None:
        told |= {"network_receive": network.bytes_recv, "network_send": network.bytes_sent}
    return told
