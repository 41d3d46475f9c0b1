"""The machine as a whole: CPU, memory, disks and network, since the sample before. Edge: psutil."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

from gpusetup.monitor.documents import HostSample

T = TypeVar("T")


def asked(read: Callable[..., T], *of: object) -> T | None:
    """What psutil tells; None if the process has ended, is another user's, or the system has no
    such figure. Watching goes on: it must not break what is watched."""
    try:
        return read(*of)
    except (psutil.Error, OSError, RuntimeError, AttributeError, KeyError):
        return None


class Host:
    """Samples of this machine; what the system does not tell is None."""

    def __init__(self) -> None:
        self._cores, _ = asked(psutil.cpu_count), asked(psutil.cpu_percent)
        self._at, self._before = time.monotonic(), _counters()

    def sample(self) -> HostSample:
        now, counters = time.monotonic(), _counters()
        passed, before = now - self._at, self._before
        self._at, self._before = now, counters
        memory, busy = asked(psutil.virtual_memory), asked(psutil.cpu_percent)
        return HostSample(
            cpu_percent=None if busy is None else round(busy * (self._cores or 1), 1),
            cores=self._cores,
            memory_used_bytes=memory and memory.total - memory.available,
            memory_total_bytes=memory and memory.total,
            **{
                f"{name}_bytes_per_second": round(max(0, counters[name] - before[name]) / passed)
                for name in counters.keys() & before.keys()
                if passed > 0
            },
        )


def _counters() -> dict[str, int]:
    """Bytes so far; nothing if there is no network or disk, or it is hidden."""
    disk, network = asked(psutil.disk_io_counters), asked(psutil.net_io_counters)
    told = {"disk_read": disk.read_bytes, "disk_write": disk.write_bytes} if disk else {}
    return told | ({"network_receive": network.bytes_recv} if network else {})
