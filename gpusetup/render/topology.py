"""How GPUs are connected, in one line of an answer."""

from __future__ import annotations

import re
from collections import defaultdict

from gpusetup.model.machine import Gpu, GpuLink, Snapshot
from gpusetup.readings.smi_topology import WORDS


def links_line(machine: Snapshot) -> str | None:
    """The links between the GPUs and their NUMA nodes; None if there is one GPU, or none is known.

    >>> gpus = tuple(Gpu(name="A100", nvml_index=n, numa_node=n) for n in (0, 1))
    >>> links_line(Snapshot(gpus=gpus, gpu_links=(GpuLink(first=0, second=1, kind="NV12"),)))
    'GPU 0-1 12 NVLinks (NV12); NUMA node 0: GPU 0; NUMA node 1: GPU 1'
    """
    gpus = machine.gpus or ()
    if len(gpus) < 2:
        return None
    parts = (*_links(machine.gpu_links or ()), *_nodes(gpus))
    return "; ".join(parts) or None


def _links(links: tuple[GpuLink, ...]) -> list[str]:
    """Each kind of link with its pairs; one kind for all pairs is said once."""
    pairs: dict[str, list[str]] = defaultdict(list)
    for link in links:
        pairs[link.kind].append(f"{link.first}-{link.second}")
    if len(pairs) == 1 and len(links) > 1:
        return [f"every two GPUs {_in_words(links[0].kind)}"]
    return [f"GPU {', '.join(listed)} {_in_words(kind)}" for kind, listed in pairs.items()]


def _in_words(kind: str) -> str:
    """
    >>> _in_words("NV4"), _in_words("PHB")
    ('4 NVLinks (NV4)', "the CPU's PCIe bridge (PHB)")
    """
    nvlinks = re.fullmatch(r"NV(\d+)", kind)
    words = f"{nvlinks[1]} NVLinks" if nvlinks else WORDS.get(kind, "unknown link")
    return f"{words} ({kind})"


def _nodes(gpus: tuple[Gpu, ...]) -> list[str]:
    """Each NUMA node with its GPUs; one node for all of them is said too."""
    numbers: dict[int, list[str]] = defaultdict(list)
    for place, gpu in enumerate(gpus):
        if gpu.numa_node is not None:
            numbers[gpu.numa_node].append(str(place if gpu.nvml_index is None else gpu.nvml_index))
    return [
        f"NUMA node {node}: GPU {', '.join(listed)}" for node, listed in sorted(numbers.items())
    ]
