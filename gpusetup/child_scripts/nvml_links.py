"""What travels over a GPU's links, and what its processes do on it, since the question before.

Neighbour of `watch_nvml`; Python 3.8 syntax, the standard library alone. Units and meaning: nvml.h
(NVML_FI_DEV_PCIE_COUNT_*: bytes; NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*: KiB, over all links where
the scope is all ones; nvmlDeviceGetPcieThroughput: KB/s over 20 ms, which it waits for;
nvmlDeviceGetProcessUtilization: percent).
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

Answer = Dict[str, Any]

EVERY_LINK = 0xFFFFFFFF
PCIE_RX, PCIE_TX, NVLINK_TX, NVLINK_RX = 198, 197, 138, 139
COUNTERS = (
    ("pcie_rx_bytes_per_second", PCIE_RX, 0, 1),
    ("pcie_tx_bytes_per_second", PCIE_TX, 0, 1),
    ("nvlink_rx_bytes_per_second", NVLINK_RX, EVERY_LINK, 1024),
    ("nvlink_tx_bytes_per_second", NVLINK_TX, EVERY_LINK, 1024),
)
"""Field of the answer, field of NVML, its scope, bytes in one."""
LANE_BYTES = (0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9)
"""A second, one way, by the generation of PCIe (PCI-SIG)."""
WAITING_SECONDS = 1.0
"""At shorter intervals what is measured over 20 ms is not asked."""


class Links:
    """The counters of one GPU; each answer is the rate since the one before."""

    def __init__(self, every: float) -> None:
        self.may_wait = every >= WAITING_SECONDS
        self.before: Dict[str, Tuple[float, int]] = {}
        self.untold: set[str] = set()
        self.used_since = 0

    def rates(self, nvml: Any, handle: Any, now: float, ask: Callable[..., Any]) -> Answer:
        wanted = [row for row in COUNTERS if row[0] not in self.untold]
        told = ask(nvml, lambda n, h: counted(n, h, wanted)) if wanted else {}
        self.untold |= {row[0] for row in wanted if row[0] not in (told or {})}
        answer = {name: self._rate(name, value, now) for name, value in (told or {}).items()}
        if self.may_wait and COUNTERS[0][0] in self.untold:
            answer.update(ask(nvml, throughput) or {})
        return dict(dict.fromkeys(row[0] for row in COUNTERS), **answer)

    def _rate(self, name: str, value: int, now: float) -> float | None:
        at, old = self.before.get(name, (now, value))
        self.before[name] = (now, value)
        return round((value - old) / (now - at)) if now > at and value >= old else None

    def process_use(self, nvml: Any, handle: Any) -> Dict[int, int]:
        """pid -> percent of the multiprocessors; the latest of each. Nothing new: NVML's error."""
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, self.used_since)
        latest = sorted((int(one.timeStamp), int(one.pid), int(one.smUtil)) for one in samples)
        if latest:
            self.used_since = latest[-1][0]
        return {pid: use for _, pid, use in latest if pid and use <= 100}


def counted(nvml: Any, handle: Any, wanted: Any) -> Dict[str, int]:
    """The counters that this driver tells."""
    values = nvml.nvmlDeviceGetFieldValues(handle, [(row[1], row[2]) for row in wanted])
    return {
        row[0]: int(value.value.ullVal) * row[3]
        for row, value in ((row, values[place]) for place, row in enumerate(wanted))
        if value.nvmlReturn == 0
    }


def throughput(nvml: Any, handle: Any) -> Answer:
    kinds = (("rx", nvml.NVML_PCIE_UTIL_RX_BYTES), ("tx", nvml.NVML_PCIE_UTIL_TX_BYTES))
    return {
        "pcie_%s_bytes_per_second" % name: nvml.nvmlDeviceGetPcieThroughput(handle, kind) * 1000
        for name, kind in kinds
    }


def pcie_limit(nvml: Any, handle: Any) -> float | None:
    """Bytes a second, one way."""
    generation = int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle))
    width = int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
    return LANE_BYTES[generation] * width if generation < len(LANE_BYTES) else None
