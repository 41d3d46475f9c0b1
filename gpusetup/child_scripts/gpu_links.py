"""How the GPUs of a machine are connected, in the notation of `nvidia-smi topo -m`.

Sources: nvml.h, nvmlGpuTopologyLevel_t and nvmlIntNvLinkDeviceType_t. Python 3.8 syntax.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's level -> where the PCIe paths of two GPUs meet. At level 0 both are on the same board."""
SWITCH = 2
"""The device type of an NVSwitch at the other end of an NVLink. A switch reaches every GPU."""
MOST_GPUS = 16
"""With more GPUs than this, asking for all pairs would take too long."""
MOST_LINKS = 18
"""The number of NVLinks of an H100, for bindings that are too old to define the constant."""

Link = Tuple[int, int, str]


def links(nvml: Any, count: int) -> List[Link]:
    """Each pair of GPUs with its link. Pairs for which NVML has no answer are left out."""
    if not 2 <= count <= MOST_GPUS:
        return []
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    except nvml.NVMLError:
        return []
    ends = [nvlink_ends(nvml, handle) for handle in handles]
    pairs: List[Link] = []
    for first in range(count):
        for second in range(first + 1, count):
            # The GPU with fewer links to the switches limits the connection.
            bonded = min(ends[first].get("", 0), ends[second].get("", 0))
            try:
                address = address_of(nvml.nvmlDeviceGetPciInfo(handles[second]))
                bonded = ends[first].get(address, 0) or bonded
            except (nvml.NVMLError, AttributeError):
                pass
            if bonded:
                pairs.append((first, second, "NV%d" % bonded))
                continue
            try:
                level = nvml.nvmlDeviceGetTopologyCommonAncestor(handles[first], handles[second])
            except (nvml.NVMLError, AttributeError):
                continue
            if int(level) in LEVELS:
                pairs.append((first, second, LEVELS[int(level)]))
    return pairs


def nvlink_ends(nvml: Any, handle: Any) -> Dict[str, int]:
    """Counts the active NVLinks by the bus address at the other end; "" stands for all switches,
    because each of them reaches every GPU."""
    ends: Dict[str, int] = {}
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", MOST_LINKS)):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            end = ""
            if int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)) != SWITCH:
                end = address_of(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link))
        # This GPU has no more links, or the driver does not report where they end.
        except (nvml.NVMLError, AttributeError):
            break
        ends[end] = ends.get(end, 0) + 1
    return ends


def address_of(pci: Any) -> str:
    """A bus address in a uniform notation, because drivers write the domain with either four or
    eight digits, and old bindings return bytes."""
    bus_id = pci.busId
    text = bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)
    domain, _, in_domain = text.lower().partition(":")
    return "%s:%s" % (domain.lstrip("0"), in_domain)
