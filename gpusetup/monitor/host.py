"""The machine as a whole: CPU, memory, disks and network, since the sample before. Edge: psutil."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from gpusetup.monitor.values import HostSample

T = TypeVar("T")
RATES = {
    "disk_read_bytes_per_second": ("disk", "read_bytes"),
    "disk_write_bytes_per_second": ("disk", "write_bytes"),
    "network_receive_bytes_per_second": ("network", "bytes_recv"),
    "network_send_bytes_per_second": ("network", "bytes_sent"),
}
"""Field of a sample -> the counter that it is the rate of."""


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
        self._at = time.monotonic()
        self._cpu = _busy()
        self._before = _counters()

    def sample(self) -> HostSample:
        now, cpu, counters = time.monotonic(), _busy(), _counters()
        seconds = now - self._at
        memory = asked(psutil.virtual_memory)
        told = HostSample(
            cpu_percent=self._cpu_percent(cpu, seconds),
            cores=self._cores,
            memory_used_bytes=memory and memory.total - memory.available,
            memory_total_bytes=memory and memory.total,
            **{name: self._rate(*of, counters, seconds) for name, of in RATES.items()},
        )
        self._at, self._cpu, self._before = now, cpu, counters
        return told

    def _cpu_percent(self, cpu: float | None, seconds: float) -> float | None:
        if cpu is None or self._cpu is None or seconds <= 0:
            return None
        return round(max(0.0, cpu - self._cpu) / seconds * 100, 1)

    def _rate(self, kind: str, name: str, now: dict[str, Any], seconds: float) -> float | None:
        new, old = (getattr(counters.get(kind), name, None) for counters in (now, self._before))
        if new is None or old is None or seconds <= 0:
            return None
        return float(round(max(0, new - old) / seconds))


def _busy() -> float | None:
    """Seconds of all cores with work."""
    times = asked(psutil.cpu_times)
    if times is None:
        return None
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _counters() -> dict[str, Any]:
    """Without a network or a disk, or where they are hidden, there is nothing to count."""
    return {
        "disk": asked(psutil.disk_io_counters),
        "network": asked(psutil.net_io_counters),
    }
