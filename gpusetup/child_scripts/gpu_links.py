"""How the GPUs of a machine are connected, in the words of `nvidia-smi topo -m`.

Sources: nvml.h, nvmlGpuTopologyLevel_t and nvmlIntNvLinkDeviceType_t. Python 3.8 syntax.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""Where the PCIe paths of two GPUs meet; 0: on the same board."""
SWITCH = 2
"""The type of device at the other end of an NVLink: an NVSwitch, which reaches every GPU."""
MOST_GPUS = 16
"""Of more GPUs the pairs would be asked for too long."""

Link = Tuple[int, int, str]


def links(nvml: Any, count: int) -> List[Link]:
    """Each pair of GPUs and its link; pairs that NVML does not tell are left out."""
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
            bonded = nvlinks_between(nvml, ends, handles, first, second)
            kind = "NV%d" % bonded if bonded else pcie_level(nvml, handles[first], handles[second])
            if kind:
                pairs.append((first, second, kind))
    return pairs


def pcie_level(nvml: Any, first: Any, second: Any) -> str | None:
    try:
        return LEVELS.get(int(nvml.nvmlDeviceGetTopologyCommonAncestor(first, second)))
    except (nvml.NVMLError, AttributeError):
        return None


def nvlink_ends(nvml: Any, handle: Any) -> Dict[str, int]:
    """The other ends of a GPU's active NVLinks: bus address -> how many; "" stands for switches."""
    ends: Dict[str, int] = {}
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            is_switch = int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)) == SWITCH
            end = "" if is_switch else address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link))
        except (nvml.NVMLError, AttributeError):
            break
        ends[end] = ends.get(end, 0) + 1
    return ends


def nvlinks_between(
    nvml: Any, ends: List[Dict[str, int]], handles: List[Any], first: int, second: int
) -> int:
    """How many NVLinks connect two GPUs, directly or through switches."""
    through_switches = min(ends[first].get("", 0), ends[second].get("", 0))
    try:
        direct = ends[first].get(address(nvml.nvmlDeviceGetPciInfo(handles[second])), 0)
    except (nvml.NVMLError, AttributeError):
        direct = 0
    return direct or through_switches


def address(pci: Any) -> str:
    """A bus address in one spelling: some drivers write a domain of four digits, some of eight."""
    text = pci.busId
    text = text.decode() if isinstance(text, bytes) else str(text)
    domain, _, rest = text.lower().partition(":")
    return "%s:%s" % (domain.lstrip("0"), rest)
