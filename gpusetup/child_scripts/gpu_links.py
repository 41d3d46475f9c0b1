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
            bonded = nvlinks_between(nvml, (ends[first], ends[second]), handles[second])
            # Use the words of `nvidia-smi topo -m`: NV18, or where the PCIe paths meet.
            kind = "NV%d" % bonded if bonded else None
            kind = kind or pcie_level(nvml, handles[first], handles[second])
            if kind:
                pairs.append((first, second, kind))
    return pairs


MOST_LINKS = 18
"""The number of NVLinks of an H100, for bindings that are too old to define the constant."""


def pcie_level(nvml: Any, first: Any, second: Any) -> str | None:
    try:
        return LEVELS.get(int(nvml.nvmlDeviceGetTopologyCommonAncestor(first, second)))
    except (nvml.NVMLError, AttributeError):
        return None


def nvlink_ends(nvml: Any, handle: Any) -> Dict[str, int]:
    """Counts a GPU's active NVLinks by the bus address at the other end; "" means a switch."""
    ends: Dict[str, int] = {}
    link_count = getattr(nvml, "NVML_NVLINK_MAX_LINKS", MOST_LINKS)
    for link in range(link_count):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            end = end_of(nvml, handle, link)
        # This GPU has no more links, or the driver does not report where they end.
        except (nvml.NVMLError, AttributeError):
            break
        ends[end] = ends.get(end, 0) + 1
    return ends


def end_of(nvml: Any, handle: Any, link: int) -> str:
    """The bus address at the other end of an NVLink; "" for a switch."""
    kind = int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link))
    # Count all switches as one, because each of them reaches every GPU.
    if kind == SWITCH:
        return ""
    pci = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
    return address(pci)


def nvlinks_between(
    nvml: Any, ends: Tuple[Dict[str, int], Dict[str, int]], second_handle: Any
) -> int:
    """How many NVLinks connect two GPUs, directly or through switches.

    `ends` contains the link ends of the first and of the second GPU.
    """
    first_ends, second_ends = ends
    # The GPU with fewer links to the switches limits the connection.
    through_switches = min(first_ends.get("", 0), second_ends.get("", 0))
    try:
        second_address = address(nvml.nvmlDeviceGetPciInfo(second_handle))
    except (nvml.NVMLError, AttributeError):
        return through_switches
    direct = first_ends.get(second_address, 0)
    return direct or through_switches


def address(pci: Any) -> str:
    """A bus address in a uniform notation, because drivers write the domain with either four or
    eight digits."""
    bus_id = pci.busId
    # Old bindings return bytes.
    text = bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)
    domain, _, in_domain = text.lower().partition(":")
    short_domain = domain.lstrip("0")
    return "%s:%s" % (short_domain, in_domain)
